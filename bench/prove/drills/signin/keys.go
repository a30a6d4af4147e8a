package signin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/fleet"
	"deeplink/deploy/stack"
)

// Encryption keys of sessions.
var (
	firstKey  = strings.Repeat("0a", 32)
	secondKey = strings.Repeat("0b", 32)
)

// rotation replaces the encryption key in four steps, one control after the other, while sessions are used and renewed.
type rotation struct{ sessions int }

func (d rotation) run(ctx context.Context, f *fleet.Fleet) ([]figures.Finding, error) {
	p, err := newProvider()
	if err != nil {
		return nil, err
	}
	defer p.server.Close()
	if err := p.createOrganization(ctx, f); err != nil {
		return nil, err
	}
	for range 2 {
		if _, err := addControl(ctx, f, p.settings(firstKey)...); err != nil {
			return nil, err
		}
	}
	cookies := make([]string, d.sessions)
	for i := range cookies {
		if cookies[i], err = p.signIn(ctx, f.Controls[i%2], ""); err != nil {
			return nil, err
		}
	}
	// The first tokens are longer than it takes until both controls have the keys.
	p.change(func() { p.accepted = 3 * shortToken })
	for i := range cookies {
		if cookies[i], err = p.signIn(ctx, f.Controls[i%2], cookies[i]); err != nil {
			return nil, err
		}
	}
	var ready balancer
	ready.set(f.Controls...)
	using, stop := context.WithCancel(ctx)
	defer stop()
	tabs := make([]tally, d.sessions)
	group, working := errgroup.WithContext(using)
	for i := range tabs {
		group.Go(func() error {
			for fleet.Pause(working, 4*tabPause) {
				err := ready.with(i, func(control *stack.Node) error {
					_, err := tabs[i].use(ctx, control, cookies[i])
					return err
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	steps := []string{firstKey + "," + secondKey, secondKey + "," + firstKey, secondKey}
	for i, keys := range steps {
		if i == len(steps)-1 {
			// CONSOLE_SESSION_LIFETIME would pass here. A session that is used moves to the first key with its next renewal.
			if err := untilMoved(ctx, f, secondKey); err != nil {
				return nil, err
			}
		}
		for n := range f.Controls {
			ready.set(f.Controls[1-n])
			if err := f.Controls[n].Stop(ctx, fleet.StopTimeout); err != nil {
				return nil, err
			}
			if f.Controls[n], err = f.StartControl(ctx, f.Controls[n].Addr, p.settings(keys)...); err != nil {
				return nil, err
			}
			ready.set(f.Controls...)
			fleet.Pause(ctx, 2*shortToken)
		}
	}
	fleet.Pause(ctx, 3*shortToken)
	stop()
	if err := group.Wait(); err != nil {
		return nil, err
	}
	ended, all, unexpected, first := 0, 0, 0, ""
	for i, cookie := range cookies {
		a, err := send(ctx, f.Controls[i%2], "GET", "/portal/session", "", cookie)
		if err != nil {
			return nil, err
		}
		if a.status != http.StatusOK {
			ended++
		}
		all, unexpected = all+tabs[i].all, unexpected+tabs[i].unexpected
		if first == "" {
			first = tabs[i].first
		}
	}
	findings := []figures.Finding{
		figures.None("sessions that ended in the four steps of a rotation of the encryption key, on two controls", ended, d.sessions),
		figures.None("calls that got an error meanwhile", unexpected, all),
		figures.Counted("renewals meanwhile", fmt.Sprint(p.renewed), fmt.Sprintf("≥ %d", 4*d.sessions), p.renewed >= 4*d.sessions),
	}
	if unexpected > 0 {
		return findings, fmt.Errorf("an unexpected response: %s", first)
	}
	return findings, nil
}

// balancer gives each tab one of the controls that are not being restarted.
type balancer struct {
	mu       sync.RWMutex
	controls []*stack.Node
}

// set waits for the calls under way.
func (b *balancer) set(controls ...*stack.Node) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.controls = slices.Clone(controls)
}

func (b *balancer) with(tab int, call func(*stack.Node) error) error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return call(b.controls[tab%len(b.controls)])
}

// untilMoved waits until every token is encrypted with the key.
func untilMoved(ctx context.Context, f *fleet.Fleet, key string) error {
	raw, err := hex.DecodeString(key)
	if err != nil {
		return err
	}
	id := sha256.Sum256(raw) // its first 4 bytes begin each encrypted token
	conn, err := pgx.Connect(ctx, f.Control)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	for {
		var left int
		err := conn.QueryRow(ctx, `select count(*) from console_sessions where substring(refresh_token for 4) <> $1 or substring(id_token for 4) <> $1`, id[:4]).Scan(&left)
		if err != nil || left == 0 {
			return err
		}
		if !fleet.Pause(ctx, 4*tabPause) {
			return fmt.Errorf("%d sessions are still encrypted with the other key: %w", left, ctx.Err())
		}
	}
}
