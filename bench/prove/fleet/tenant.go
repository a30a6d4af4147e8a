package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"
)

// Tenant is an organization of the fleet, and a client of the API that expects a response to every request.
type Tenant struct {
	Organization
	Fleet *Fleet
	turn  atomic.Uint64
	Pace  *time.Ticker // keeps the key below its 100 writes a second
}

// NewTenant creates an organization with the largest plan.
func (f *Fleet) NewTenant(ctx context.Context) (*Tenant, error) {
	o, err := NewOrganization(ctx, f.OperatorCommand)
	if err != nil {
		return nil, err
	}
	return &Tenant{Organization: o, Fleet: f, Pace: time.NewTicker(11 * time.Millisecond)}, nil
}

// OperatorCommand runs an operator's command.
func (f *Fleet) OperatorCommand(ctx context.Context, arguments ...string) ([]byte, error) {
	return f.Operate(ctx, f.Control, arguments...)
}

// Call sends one request to the controls in turn, and fails on any status but the expected one.
func (t *Tenant) Call(ctx context.Context, method, path string, body any, want int) (answer Answer, err error) {
	control := t.Fleet.Controls[t.turn.Add(1)%uint64(len(t.Fleet.Controls))]
	<-t.Pace.C
	began := time.Now()
	response, text, err := t.Request(ctx, control.Addr, method, path, body)
	if err != nil {
		return answer, err
	}
	answer.Took = time.Since(began)
	answer.Propagation = response.Header.Get("Deeplink-Propagation")
	if response.StatusCode != want {
		return answer, fmt.Errorf("%s %s: %d %s", method, path, response.StatusCode, text)
	}
	return answer, json.Unmarshal(text, &answer.Link)
}

// Answer is control's response to one call.
type Answer struct {
	Link struct {
		ID        string `json:"id"`
		ShortCode string `json:"shortCode"`
	}
	Took        time.Duration
	Propagation string
}

// Link is a link to click: its id, and the path of its short URL.
type Link struct{ ID, Path string }

// MakeLinks creates n links of a new organization, and returns them with their tenant.
func MakeLinks(ctx context.Context, f *Fleet, n int) (*Tenant, []Link, error) {
	t, err := f.NewTenant(ctx)
	if err != nil {
		return nil, nil, err
	}
	keys := make([]Link, n)
	for i := range keys {
		if keys[i], err = t.MakeLink(ctx); err != nil {
			return nil, nil, err
		}
	}
	return t, keys, nil
}

// MakeLink creates a link with the target Target(0).
func (t *Tenant) MakeLink(ctx context.Context) (Link, error) {
	a, err := t.Call(ctx, "POST", "/links", Fields{"path": "/x", "fallbackUrl": Target(0)}, 201)
	return Link{a.Link.ID, "/" + t.OrgKey + "/" + a.Link.ShortCode}, err
}

// Fields is a request body.
type Fields map[string]any

// Target returns the target of the n-th version of a link.
func Target(n int) string { return fmt.Sprintf("https://example.com/%d", n) }
