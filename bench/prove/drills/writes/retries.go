package writes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/fleet"
)

// retries has many clients repeat each of their writes, with an idempotency key, until two responses with 2xx have arrived. They send to two
// controls through a proxy that drops half of the requests and half of the responses, while the controls are killed in turn. A client makes so
// many writes, and then more until both controls were killed.
type retries struct {
	clients, writes, organizations int
	killEvery                      time.Duration
}

// kinds are the writes of the clients; each creates one link. %[1]s is the name of the write.
var kinds = []struct{ method, path, body string }{
	{"POST", "/links", `{"path":"/%[1]s"}`},
	{"PUT", "/links/external/%[1]s", `{"path":"/%[1]s"}`},
	{"POST", "/links/bulk", `{"operations":[{"op":"create","link":{"path":"/%[1]s"}}]}`},
}

// outcome is what the clients saw.
type outcome struct {
	keys, attempts, killed, different, replayed, inProgress atomic.Int64
}

func (d retries) run(ctx context.Context, f *fleet.Fleet) ([]figures.Finding, error) {
	var tenants []fleet.Organization
	for range d.organizations {
		o, err := fleet.NewOrganization(ctx, f.OperatorCommand)
		if err != nil {
			return nil, err
		}
		tenants = append(tenants, o)
	}
	network, err := startProxy([]string{f.Controls[0].Addr, f.Controls[1].Addr}, d.clients)
	if err != nil {
		return nil, err
	}
	defer network.close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: d.clients}, Timeout: 20 * time.Second}
	var seen outcome
	killing, stop := context.WithCancel(ctx)
	defer stop()
	var killer sync.WaitGroup
	var killErr error
	killer.Go(func() { killErr = d.kill(killing, f, &seen) })
	group, sending := errgroup.WithContext(ctx)
	for i := range d.clients {
		group.Go(func() error {
			for n := 0; n < d.writes || seen.killed.Load() < 2; n++ {
				seen.keys.Add(1)
				w := write{client: client, proxy: network.addr, key: tenants[i%len(tenants)].ServerKey, name: fmt.Sprintf("client-%d-%d", i, n), kind: (i + n) % len(kinds)}
				if err := w.repeat(sending, &seen); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err = group.Wait()
	stop()
	killer.Wait()
	if err := errors.Join(err, killErr); err != nil {
		return nil, err
	}
	links, entries, stored, err := count(ctx, f)
	keys := int(seen.keys.Load())
	exact := func(what string, n int) figures.Finding {
		return figures.Counted(what, fmt.Sprint(n), fmt.Sprint(keys), n == keys)
	}
	some := func(what string, n int64) figures.Finding { return figures.Counted(what, fmt.Sprint(n), "> 0", n > 0) }
	return []figures.Finding{
		figures.Counted(fmt.Sprintf("keys of %d clients", d.clients), fmt.Sprint(keys), "", true),
		exact("links", links), exact("audit entries", entries), exact("stored responses", stored),
		figures.None("keys with responses that differ", int(seen.different.Load()), keys),
		some("attempts", seen.attempts.Load()), some("requests and responses dropped", network.dropped.Load()),
		some("replays that arrived", seen.replayed.Load()), some(fmt.Sprintf("controls killed, one every %v", d.killEvery), seen.killed.Load()),
	}, err
}

// write is a write of a client with its own idempotency key.
type write struct {
	client           *http.Client
	proxy, key, name string
	kind             int
}

// repeat sends the write until two responses with 2xx have arrived, and compares them.
func (w write) repeat(ctx context.Context, seen *outcome) error {
	kind := kinds[w.kind]
	var first string
	for {
		seen.attempts.Add(1)
		request, err := http.NewRequestWithContext(ctx, kind.method, "http://"+w.proxy+strings.ReplaceAll(kind.path, "%[1]s", w.name), strings.NewReader(strings.ReplaceAll(kind.body, "%[1]s", w.name)))
		if err != nil {
			return err
		}
		request.GetBody = nil // net/http must not repeat it behind our back
		request.Header.Set("Authorization", "Bearer "+w.key)
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Idempotency-Key", w.name)
		response, err := w.client.Do(request)
		if err != nil {
			if !fleet.Pause(ctx, time.Duration(20+rand.IntN(200))*time.Millisecond) {
				return ctx.Err()
			}
			continue
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		switch {
		case err != nil:
		case response.StatusCode < 300:
			if response.Header.Get("Idempotency-Replayed") != "" {
				seen.replayed.Add(1)
			}
			if first == "" {
				first = string(body)
				continue
			}
			if first != string(body) {
				seen.different.Add(1)
			}
			return nil
		case response.StatusCode == http.StatusTooManyRequests, response.StatusCode == http.StatusServiceUnavailable:
		case response.StatusCode == http.StatusConflict && strings.Contains(string(body), "IDEMPOTENCY_IN_PROGRESS"):
			seen.inProgress.Add(1)
		default:
			return fmt.Errorf("%s: %d %s", w.name, response.StatusCode, body)
		}
		if !fleet.Pause(ctx, time.Duration(100+rand.IntN(400))*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// kill kills the controls in turn, and starts each again at its address, until ctx ends. Both run when it returns.
func (d retries) kill(ctx context.Context, f *fleet.Fleet, seen *outcome) error {
	for i := 0; fleet.Pause(ctx, d.killEvery); i = 1 - i {
		if err := f.Controls[i].Kill(); err != nil {
			return err
		}
		seen.killed.Add(1)
		node, err := f.StartControl(context.WithoutCancel(ctx), f.Controls[i].Addr, f.ControlSettings...)
		if err != nil {
			return err
		}
		f.Controls[i] = node
	}
	return nil
}

// count returns how many links, audit entries of creates and stored responses the database has.
func count(ctx context.Context, f *fleet.Fleet) (links, entries, keys int, err error) {
	conn, err := pgx.Connect(ctx, f.Owner)
	if err != nil {
		return 0, 0, 0, err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, `select (select count(*) from links), (select count(*) from audit_log where action = 'link.create'),
		(select count(*) from idempotency_keys)`).Scan(&links, &entries, &keys)
	return links, entries, keys, err
}
