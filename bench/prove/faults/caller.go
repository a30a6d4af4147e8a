package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"deeplink/bench/prove/faults/history"
	"deeplink/bench/prove/fleet"
)

const (
	// patience is how long to wait for a response of control: twice as long as it takes when an edge does not acknowledge.
	patience = 5 * time.Second
	// commandPatience is the same for an operator's command, which starts a process.
	commandPatience = 8 * time.Second
)

// caller is the backend of an organization. It expects that responses may be missing.
type caller struct {
	fleet.Organization
	run *run
}

var errNoOutcome = errors.New("the response does not say whether the change is propagated")

// newCaller creates an organization, with retries until that succeeds or ctx ends.
func (r *run) newCaller(ctx context.Context) *caller {
	for {
		if o, err := fleet.NewOrganization(ctx, r.operate); err == nil {
			return &caller{Organization: o, run: r}
		}
		if !fleet.Pause(ctx, 200*time.Millisecond) {
			return nil
		}
	}
}

// operate runs an operator's command to its end, even if the run ends meanwhile.
func (r *run) operate(ctx context.Context, arguments ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commandPatience)
	defer cancel()
	return r.rig.operate(ctx, arguments...)
}

// propagation reads the outcome of an operator's command that changes what edges serve.
func propagation(out []byte, err error) history.Outcome {
	var said struct{ Propagation string }
	if err != nil || json.Unmarshal(out, &said) != nil {
		return history.Unknown // it was killed, or could not determine the outcome
	}
	return outcomeOf(said.Propagation)
}

// reply is control's response to a call. status is 0 without a response.
type reply struct {
	status  int
	outcome history.Outcome
	id      string
}

// call sends one request to one of the controls. A request that timed out may take effect later.
func (c *caller) call(ctx context.Context, method, path string, body any, within time.Duration) reply {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	controls := c.run.rig.controls
	response, text, err := c.Request(ctx, controls[rand.IntN(len(controls))].addr, method, path, body)
	var network *net.OpError
	switch {
	case errors.As(err, &network) && network.Op == "dial":
		return reply{outcome: history.Refused}
	case err != nil:
		return reply{outcome: history.Unknown}
	}
	said := reply{status: response.StatusCode}
	switch said.status {
	case http.StatusOK, http.StatusCreated, http.StatusNotFound:
		said.outcome = outcomeOf(response.Header.Get("Deeplink-Propagation"))
		var link struct{ ID string }
		if err := json.Unmarshal(text, &link); err == nil {
			said.id = link.ID
		}
		if said.status != http.StatusNotFound && said.outcome == history.Complete && method != http.MethodGet && response.Header.Get("Deeplink-Propagation") == "" {
			c.run.surprise(fmt.Sprintf("%s %s: %v", method, path, errNoOutcome))
		}
	case http.StatusTooManyRequests:
		said.outcome = history.Refused
	case http.StatusServiceUnavailable:
		said.outcome = history.Unknown
	default:
		said.outcome = history.Unknown
		c.run.surprise(fmt.Sprintf("%s %s returned %d: %s", method, path, said.status, text))
	}
	return said
}

// outcomeOf reads the value of Deeplink-Propagation. Without it, no edge may serve an old version.
func outcomeOf(propagation string) history.Outcome {
	if propagation == "pending" {
		return history.Pending
	}
	return history.Complete
}
