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

// retries has many clients repeat one write each, with an idempotency key, until two responses with 2xx have arrived. They send to two
// controls through a network that loses half of the requests and half of the responses, while the controls are killed in turn.
type retries struct{ clients, organizations int }

// killEvery is how many attempts per client pass between two kills of a control. A client needs eight on average, for two responses that
// arrive, so the first kill comes while clients are sending.
const killEvery = 3

// lossy is a network: a request is lost before it is sent, or its response after it has arrived.
type lossy struct {
	http.RoundTripper
	lost atomic.Int64
}

var errLost = errors.New("lost by the network")

// RoundTrip implements http.RoundTripper.
func (l *lossy) RoundTrip(r *http.Request) (*http.Response, error) {
	if rand.IntN(2) == 0 {
		l.lost.Add(1)
		return nil, errLost
	}
	response, err := l.RoundTripper.RoundTrip(r)
	if err != nil || rand.IntN(2) != 0 {
		return response, err
	}
	l.lost.Add(1)
	_, _ = io.Copy(io.Discard, response.Body)
	response.Body.Close()
	return nil, errLost
}

// kinds are the writes of the clients; each creates one link. %[1]d is the number of the client.
var kinds = []struct{ method, path, body string }{
	{"POST", "/links", `{"path":"/client/%[1]d"}`},
	{"PUT", "/links/external/client-%[1]d", `{"path":"/client/%[1]d"}`},
	{"POST", "/links/bulk", `{"operations":[{"op":"create","link":{"path":"/client/%[1]d"}}]}`},
}

// outcome is what the clients saw.
type outcome struct {
	attempts, killed, different atomic.Int64
	replayed, inProgress        atomic.Int64
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
	network := &lossy{RoundTripper: &http.Transport{MaxIdleConnsPerHost: d.clients}}
	client := &http.Client{Transport: network, Timeout: 20 * time.Second}
	var seen outcome
	killing, stop := context.WithCancel(ctx)
	defer stop()
	var killer sync.WaitGroup
	var killErr error
	killer.Go(func() { killErr = d.kill(killing, f, &seen) })
	group, sending := errgroup.WithContext(ctx)
	addrs := []string{f.Controls[0].Addr, f.Controls[1].Addr}
	for i := range d.clients {
		group.Go(func() error { return d.client(sending, client, addrs, tenants[i%len(tenants)], i, &seen) })
	}
	err := group.Wait()
	stop()
	killer.Wait()
	if err := errors.Join(err, killErr); err != nil {
		return nil, err
	}
	links, entries, keys, err := count(ctx, f)
	exact := func(what string, n int) figures.Finding {
		return figures.Counted(what, fmt.Sprint(n), fmt.Sprint(d.clients), n == d.clients)
	}
	return []figures.Finding{
		exact("links", links), exact("audit entries", entries), exact("stored responses", keys),
		figures.None("responses to a key that differ", int(seen.different.Load()), d.clients),
		figures.Counted("attempts", fmt.Sprint(seen.attempts.Load()), "", true),
		figures.Counted("requests and responses lost", fmt.Sprint(network.lost.Load()), "> 0", network.lost.Load() > 0),
		figures.Counted("replays that arrived", fmt.Sprint(seen.replayed.Load()), "> 0", seen.replayed.Load() > 0),
		figures.Counted("controls killed", fmt.Sprint(seen.killed.Load()), "> 0", seen.killed.Load() > 0),
	}, err
}

// client repeats the write number i until two responses have arrived, and compares them.
func (d retries) client(ctx context.Context, client *http.Client, addrs []string, o fleet.Organization, i int, seen *outcome) error {
	kind := kinds[i%len(kinds)]
	var first string
	for {
		seen.attempts.Add(1)
		request, err := http.NewRequestWithContext(ctx, kind.method, "http://"+addrs[rand.IntN(2)]+numbered(kind.path, i), strings.NewReader(numbered(kind.body, i)))
		if err != nil {
			return err
		}
		request.GetBody = nil // net/http must not repeat it behind our back
		request.Header.Set("Authorization", "Bearer "+o.ServerKey)
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Idempotency-Key", fmt.Sprintf("client-%d", i))
		response, err := client.Do(request)
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
			return fmt.Errorf("client %d: %d %s", i, response.StatusCode, body)
		}
		if !fleet.Pause(ctx, time.Duration(100+rand.IntN(400))*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// numbered fills in the number of a client.
func numbered(text string, i int) string {
	if !strings.Contains(text, "%") {
		return text
	}
	return fmt.Sprintf(text, i)
}

// kill kills the controls in turn, and starts each again at its address, until ctx ends. Both run when it returns.
func (d retries) kill(ctx context.Context, f *fleet.Fleet, seen *outcome) error {
	next := int64(0)
	for i := 0; ; i = 1 - i {
		for next += killEvery * int64(d.clients); seen.attempts.Load() < next; {
			if !fleet.Pause(ctx, 5*time.Millisecond) {
				return nil
			}
		}
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
