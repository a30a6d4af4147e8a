package signin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/fleet"
	"deeplink/deploy/stack"
)

// kills kills the control that renews a session, at three points of the renewal, with a provider that accepts a replaced refresh token for a while and
// with one that does not. Meanwhile a tab uses the session over another control.
type kills struct{}

// point is when the control is killed.
type point string

const (
	beforeRequest point = "before the provider processed the request"
	afterRequest  point = "after the provider processed it"
	beforeResult  point = "before the result was stored"
)

const (
	// renewalTime is longer than the lease of a control that was killed, which another control waits for.
	renewalTime = 20 * time.Second
	// endsSoon is the acceptance of a token that control renews with the next call, long before it ends.
	endsSoon = 19 * time.Second
)

func (d kills) run(ctx context.Context, f *fleet.Fleet) (findings []figures.Finding, err error) {
	for _, overlap := range []time.Duration{30 * time.Second, 0} {
		for _, at := range []point{beforeRequest, afterRequest, beforeResult} {
			finding, err := killOnce(ctx, f, at, overlap)
			if err != nil {
				return findings, fmt.Errorf("kill -9 %s, overlap %v: %w", at, overlap, err)
			}
			findings = append(findings, finding)
		}
	}
	return findings, nil
}

// killOnce is one case, with two controls and a provider of its own.
func killOnce(ctx context.Context, f *fleet.Fleet, at point, overlap time.Duration) (finding figures.Finding, err error) {
	p, err := newProvider()
	if err != nil {
		return finding, err
	}
	defer p.server.Close()
	p.overlap, p.lifetime = overlap, time.Minute
	if err := p.createOrganization(ctx, f); err != nil {
		return finding, err
	}
	var controls [2]*stack.Node
	for i := range controls {
		if controls[i], err = addControl(ctx, f, p.settings(firstKey)...); err != nil {
			return finding, err
		}
		defer func() { _ = controls[i].Kill() }()
		// It has the discovery document afterwards.
		if _, err := p.signIn(ctx, controls[i], ""); err != nil {
			return finding, err
		}
	}
	p.change(func() { p.accepted = endsSoon })
	cookie, err := p.signIn(ctx, controls[0], "")
	if err != nil {
		return finding, err
	}
	p.change(func() { p.accepted = time.Minute })
	killed := make(chan error, 1)
	if err := p.killAt(ctx, f, at, controls[0], killed); err != nil {
		return finding, err
	}
	// This call proceeds, and starts the renewal.
	if a, err := send(ctx, controls[0], "GET", "/portal/organization", "", cookie); err == nil && a.status != http.StatusOK {
		return finding, fmt.Errorf("the call that starts the renewal: %s", a)
	}
	select {
	case err = <-killed:
	case <-time.After(renewalTime):
		err = errors.New("no renewal started")
	}
	if err != nil {
		return finding, err
	}
	return p.outcome(ctx, controls[1], cookie, at, overlap)
}

// outcome uses the session over the control that is left, until the session was renewed or must be continued by the person.
func (p *provider) outcome(ctx context.Context, control *stack.Node, cookie string, at point, overlap time.Duration) (figures.Finding, error) {
	what := fmt.Sprintf("kill -9 %s, overlap %v", at, overlap)
	var before int
	p.change(func() { before = p.renewed })
	waiting, stop := context.WithTimeout(ctx, renewalTime)
	defer stop()
	var calls tally
	for fleet.Pause(waiting, tabPause) {
		a, err := calls.use(ctx, control, cookie)
		if err != nil {
			return figures.Finding{}, err
		}
		if a.code == "SESSION_RENEW" {
			// The person continues without a password.
			next, err := p.signIn(ctx, control, cookie)
			if err != nil {
				return figures.Finding{}, err
			}
			continued, err := send(ctx, control, "GET", "/portal/organization", "", next)
			kept := err == nil && continued.status == http.StatusOK && overlap == 0 && at != beforeRequest && calls.unexpected == 1
			return figures.Counted(what, fmt.Sprintf("SESSION_RENEW after %d calls; continued: %d", calls.all-1, continued.status), "SESSION_RENEW, then 200", kept), err
		}
		var renewed int
		p.change(func() { renewed = p.renewed })
		if renewed > before {
			seamless := overlap > 0 || at == beforeRequest
			return figures.Counted(what, fmt.Sprintf("renewed, %d of %d calls failed", calls.unexpected, calls.all), "no visible effect", seamless && calls.unexpected == 0 && calls.all > 10), nil
		}
	}
	return figures.Counted(what, "neither renewed nor SESSION_RENEW", "either", false), ctx.Err()
}

// killAt has the next renewal kill the control.
func (p *provider) killAt(ctx context.Context, f *fleet.Fleet, at point, control *stack.Node, killed chan<- error) error {
	kill := func() bool {
		p.change(func() { p.before, p.after = nil, nil })
		killed <- control.Kill()
		return false
	}
	switch at {
	case beforeRequest:
		p.change(func() { p.before = kill })
	case afterRequest:
		p.change(func() { p.after = kill })
	case beforeResult:
		conn, err := pgx.Connect(ctx, f.Control)
		if err != nil {
			return err
		}
		p.change(func() {
			p.after = func() bool {
				p.change(func() { p.after = nil })
				// The response is sent, and the control waits for the lock of the row when it stores the result.
				tx, err := conn.Begin(ctx)
				if err == nil {
					_, err = tx.Exec(ctx, `select 1 from console_sessions where lease_id is not null for update`)
				}
				go func() {
					defer conn.Close(context.WithoutCancel(ctx))
					killed <- errors.Join(err, killWaiting(ctx, conn, control))
				}()
				return true
			}
		})
	}
	return nil
}

// killWaiting kills the control once it waits for a lock of conn. Its statement ends with it: Postgres would complete it otherwise, once it has the lock,
// because a backend that waits does not notice that its client is gone.
func killWaiting(ctx context.Context, conn *pgx.Conn, control *stack.Node) error {
	const waiting = `from pg_locks where not granted and pg_backend_pid() = any(pg_blocking_pids(pid))`
	ctx, stop := context.WithTimeout(ctx, renewalTime)
	defer stop()
	for {
		var found bool
		if err := conn.QueryRow(ctx, `select exists (select `+waiting+`)`).Scan(&found); err != nil {
			return err
		}
		if found {
			break
		}
		if !fleet.Pause(ctx, 10*time.Millisecond) {
			return errors.New("the control does not store a result")
		}
	}
	if err := control.Kill(); err != nil {
		return err
	}
	_, err := conn.Exec(ctx, `select pg_terminate_backend(pid) `+waiting)
	return err
}
