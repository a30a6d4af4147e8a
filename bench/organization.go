package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// organization is what its backend knows of itself.
type organization struct{ orgKey, serverKey, clientKey string }

// client asks control, and whoever else is not an edge.
var client = &http.Client{
	Timeout: 30 * time.Second,
	Transport: &http.Transport{
		MaxIdleConnsPerHost: 64, DisableCompression: true,
	},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// newOrganization makes an organization. operate runs an operator's command.
func newOrganization(ctx context.Context, operate func(ctx context.Context, arguments ...string) ([]byte, error)) (organization, error) {
	out, err := operate(ctx, "org", "create", "--name", "bench", "--plan", "enterprise", "--app-config", "demo")
	if err != nil {
		return organization{}, err
	}
	var made struct{ OrgKey, ServerKey, ClientKey string }
	if err := json.Unmarshal(out, &made); err != nil {
		return organization{}, fmt.Errorf("control org create printed %s: %w", out, err)
	}
	return organization{made.OrgKey, made.ServerKey, made.ClientKey}, nil
}

// request sends one request of the organization's backend to the control on addr, and returns the answer, whose body is closed, with
// its text.
func (o organization) request(ctx context.Context, addr, method, path string, body any) (*http.Response, []byte, error) {
	if body == nil {
		return send(ctx, addr, o.serverKey, method, path, nil)
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, nil, err
	}
	return send(ctx, addr, o.serverKey, method, path, bytes.NewReader(text))
}

// send sends one request with an API key to the control on addr, and returns the answer, whose body is closed, with its text.
func send(ctx context.Context, addr, apiKey, method, path string, body io.Reader) (*http.Response, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://"+addr+path, body)
	if err != nil {
		return nil, nil, err
	}
	// Without this a request that is told to be repeated safely would be repeated behind our back.
	request.GetBody = nil
	request.Header.Set("Authorization", "Bearer "+apiKey)
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response, text, err
}
