package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"
)

// tenant is an organization of the fleet, and a client of the API that expects to be answered.
type tenant struct {
	organization
	fleet *fleet
	turn  atomic.Uint64
	pace  *time.Ticker // keeps the key below its 100 writes a second
}

func (f *fleet) newTenant(ctx context.Context) (*tenant, error) {
	o, err := newOrganization(ctx, f.operate)
	if err != nil {
		return nil, err
	}
	return &tenant{organization: o, fleet: f, pace: time.NewTicker(11 * time.Millisecond)}, nil
}

// operate runs an operator's command.
func (f *fleet) operate(ctx context.Context, arguments ...string) ([]byte, error) {
	return f.Operate(ctx, f.Control, arguments...)
}

// call sends one request to the controls in turn, and fails on any other status than the one expected.
func (t *tenant) call(ctx context.Context, method, path string, body any, want int) (answer answer, err error) {
	control := t.fleet.controls[t.turn.Add(1)%uint64(len(t.fleet.controls))]
	<-t.pace.C
	began := time.Now()
	response, text, err := t.request(ctx, control.Addr, method, path, body)
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
