package signin

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/fleet"
)

// renewals keeps one session alive over n renewals: two tabs of a browser call all the time, each over its own control.
type renewals struct{ n int }

const (
	// shortToken is how long control accepts a token in place of 60 s.
	shortToken = 2 * time.Second
	// tabPause is the time between two calls of a tab.
	tabPause = 50 * time.Millisecond
)

func (d renewals) run(ctx context.Context, f *fleet.Fleet) ([]figures.Finding, error) {
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
	cookie, err := p.signIn(ctx, f.Controls[0], "")
	if err != nil {
		return nil, err
	}
	// The first token is long, until both controls have the discovery document and the keys.
	if _, err := p.signIn(ctx, f.Controls[1], ""); err != nil {
		return nil, err
	}
	p.change(func() { p.accepted = shortToken })
	if cookie, err = p.signIn(ctx, f.Controls[0], cookie); err != nil {
		return nil, err
	}
	began := time.Now()
	// On a machine that does nothing else, a renewal takes place every 1.4 s.
	calling, stop := context.WithTimeout(ctx, time.Duration(d.n)*4*shortToken)
	defer stop()
	tabs := make([]tally, 2)
	group, working := errgroup.WithContext(calling)
	for i := range tabs {
		group.Go(func() error {
			for fleet.Pause(working, tabPause) {
				var done int
				p.change(func() { done = p.renewed })
				if done >= d.n {
					return nil
				}
				if _, err := tabs[i].use(ctx, f.Controls[i], cookie); err != nil {
					return fmt.Errorf("tab %d: %w", i+1, err)
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	all, unexpected := tabs[0].all+tabs[1].all, tabs[0].unexpected+tabs[1].unexpected
	findings := []figures.Finding{
		figures.Counted(fmt.Sprintf("renewals of one session, with tokens that are accepted for %v, in %v", shortToken, time.Since(began).Round(time.Second)),
			fmt.Sprint(p.renewed), fmt.Sprintf("≥ %d", d.n), p.renewed >= d.n),
		figures.None("calls of two tabs over two controls that got an error: 401, 503 or any other", unexpected, all),
		figures.Counted("renewals at the same time", fmt.Sprint(p.most), "1", p.most == 1),
		figures.None("renewals that the provider refused", p.refused, p.renewed+p.refused),
	}
	if unexpected > 0 {
		return findings, fmt.Errorf("unexpected responses: %s%s", tabs[0].first, tabs[1].first)
	}
	return findings, nil
}
