package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Organization is an organization as its backend knows it: its public key, and the API keys of its servers and of its apps.
type Organization struct{ OrgKey, ServerKey, ClientKey string }

// Client sends requests to control and to servers other than edges.
var Client = &http.Client{
	Timeout: 30 * time.Second,
	Transport: &http.Transport{
		MaxIdleConnsPerHost: 64, DisableCompression: true,
	},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// NewOrganization creates an organization. operate runs an operator's command.
func NewOrganization(ctx context.Context, operate func(ctx context.Context, arguments ...string) ([]byte, error)) (Organization, error) {
	out, err := operate(ctx, "org", "create", "--name", "bench", "--plan", "enterprise", "--app-config", "demo")
	if err != nil {
		return Organization{}, err
	}
	var made struct{ OrgKey, ServerKey, ClientKey string }
	if err := json.Unmarshal(out, &made); err != nil {
		return Organization{}, fmt.Errorf("control org create printed %s: %w", out, err)
	}
	return Organization{made.OrgKey, made.ServerKey, made.ClientKey}, nil
}

// Request sends one request of the organization's backend to the control on addr. It returns the response, whose body is closed, and the
// text of the body.
func (o Organization) Request(ctx context.Context, addr, method, path string, body any) (*http.Response, []byte, error) {
	if body == nil {
		return Send(ctx, addr, o.ServerKey, method, path, nil)
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, nil, err
	}
	return Send(ctx, addr, o.ServerKey, method, path, bytes.NewReader(text))
}

// Send sends one request with an API key to the control on addr. It returns the response, whose body is closed, and the text of the body.
func Send(ctx context.Context, addr, apiKey, method, path string, body io.Reader) (*http.Response, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://"+addr+path, body)
	if err != nil {
		return nil, nil, err
	}
	// Without this, net/http would silently retry a request that has an idempotency key.
	request.GetBody = nil
	request.Header.Set("Authorization", "Bearer "+apiKey)
	request.Header.Set("Content-Type", "application/json")
	response, err := Client.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response, text, err
}
