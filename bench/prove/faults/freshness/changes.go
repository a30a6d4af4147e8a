package freshness

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"deeplink/bench/prove/fleet"
)

// round changes a link that every edge serves at that moment, and checks every edge after each response.
type round func(ctx context.Context, w *worker) error

// kinds are the changes that stop or change what an edge serves. rounds returns the rounds of one worker, with their shared state.
var kinds = []struct {
	name   string
	rounds func() round
}{{"delete", deleting}, {"deactivate", deactivating}, {"edit", editing}, {"suspend", suspending}}

func deleting() round {
	return func(ctx context.Context, w *worker) error {
		id, code, err := w.create(ctx)
		if err != nil {
			return err
		}
		if err := w.change(ctx, "DELETE", "/links/"+id, nil); err != nil {
			return err
		}
		return w.expect(code, 404, "")
	}
}

// onOneLink creates one link in the first round and uses it in all rounds.
func onOneLink(change func(ctx context.Context, w *worker, id, code string) error) round {
	var id, code string
	return func(ctx context.Context, w *worker) (err error) {
		if id == "" {
			if id, code, err = w.create(ctx); err != nil {
				return err
			}
		}
		return change(ctx, w, id, code)
	}
}

func deactivating() round {
	return onOneLink(func(ctx context.Context, w *worker, id, code string) error {
		if err := w.change(ctx, "PATCH", "/links/"+id, fleet.Fields{"isActive": false}); err != nil {
			return err
		}
		if err := w.expect(code, 410, ""); err != nil {
			return err
		}
		if err := w.change(ctx, "PATCH", "/links/"+id, fleet.Fields{"isActive": true}); err != nil {
			return err
		}
		return w.expect(code, 302, fleet.Target(0))
	})
}

func editing() round {
	n := 0
	return onOneLink(func(ctx context.Context, w *worker, id, code string) error {
		n++
		if err := w.change(ctx, "PATCH", "/links/"+id, fleet.Fields{"fallbackUrl": fleet.Target(n)}); err != nil {
			return err
		}
		return w.expect(code, 302, fleet.Target(n))
	})
}

// suspending uses the operator's command: its latency is that of a whole process.
func suspending() round {
	return onOneLink(func(ctx context.Context, w *worker, _, code string) error {
		if err := w.operate(ctx, "suspend"); err != nil {
			return err
		}
		if err := w.expect(code, 410, ""); err != nil {
			return err
		}
		if err := w.operate(ctx, "resume"); err != nil {
			return err
		}
		return w.expect(code, 302, fleet.Target(0))
	})
}

func (w *worker) operate(ctx context.Context, verb string) error {
	began := time.Now()
	out, err := w.tenant.Fleet.OperatorCommand(ctx, "org", verb, w.tenant.OrgKey)
	if err != nil {
		return err
	}
	var said struct{ Propagation string }
	if err := json.Unmarshal(out, &said); err != nil {
		return fmt.Errorf("control org %s printed %s: %w", verb, out, err)
	}
	w.row.add(time.Since(began), said.Propagation)
	return nil
}
