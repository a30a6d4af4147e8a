package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// tenant is an organization of the fleet with its server key, and a client of the API.
type tenant struct {
	fleet     *fleet
	orgKey    string
	serverKey string
	turn      atomic.Uint64
	pace      *time.Ticker // keeps the key below its 100 writes a second
}

var client = &http.Client{
	Timeout: 30 * time.Second,
	Transport: &http.Transport{
		MaxIdleConnsPerHost: 64, DisableCompression: true,
	},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func (f *fleet) newTenant(ctx context.Context) (*tenant, error) {
	out, err := f.Operate(ctx, f.Control, "org", "create", "--name", "bench", "--plan", "enterprise", "--app-config", "demo")
	if err != nil {
		return nil, err
	}
	var made struct{ OrgKey, ServerKey string }
	if err := json.Unmarshal(out, &made); err != nil {
		return nil, fmt.Errorf("control org create printed %s: %w", out, err)
	}
	return &tenant{fleet: f, orgKey: made.OrgKey, serverKey: made.ServerKey, pace: time.NewTicker(11 * time.Millisecond)}, nil
}

// call sends one request to the controls in turn, and fails on any other status than the one expected.
func (t *tenant) call(ctx context.Context, method, path string, body any, want int) (answer answer, err error) {
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return answer, err
		}
		reader = bytes.NewReader(text)
	}
	control := t.fleet.controls[t.turn.Add(1)%uint64(len(t.fleet.controls))]
	request, err := http.NewRequestWithContext(ctx, method, control.URL()+path, reader)
	if err != nil {
		return answer, err
	}
	request.Header.Set("Authorization", "Bearer "+t.serverKey)
	request.Header.Set("Content-Type", "application/json")
	<-t.pace.C
	began := time.Now()
	response, err := client.Do(request)
	if err != nil {
		return answer, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return answer, err
	}
	answer.took = time.Since(began)
	answer.propagation = response.Header.Get("Deeplink-Propagation")
	if response.StatusCode != want {
		return answer, fmt.Errorf("%s %s: %d %s", method, path, response.StatusCode, text)
	}
	return answer, json.Unmarshal(text, &answer.link)
}

// answer is what control said to one call.
type answer struct {
	link struct {
		ID        string `json:"id"`
		ShortCode string `json:"shortCode"`
	}
	took        time.Duration
	propagation string
}

// fetch returns the body of a page that is there.
func fetch(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %d %s", url, response.StatusCode, text)
	}
	return string(text), err
}

// click asks one edge for a code as visitor, and returns status and Location.
func (f *fleet) click(ctx context.Context, edge int, orgKey, code string, visitor int) (status int, location string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, f.edges[edge].URL()+"/"+orgKey+"/"+code, nil)
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("X-Forwarded-For", fmt.Sprintf("10.%d.%d.%d", visitor>>16&255, visitor>>8&255, visitor&255))
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return 0, "", err
	}
	return response.StatusCode, response.Header.Get("Location"), nil
}
