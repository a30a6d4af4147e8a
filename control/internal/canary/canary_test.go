package canary

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"deeplink/control/internal/edgeclient"
	"deeplink/control/internal/store"
	"deeplink/control/internal/testenv"
	"deeplink/shared/requestid"
	"deeplink/shared/testkit"
)

func TestCanaryFindsAnEdgeThatAnswersFromBefore(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		remembers int
		result    string
		changes   []string // after which its answer is a violation
	}{
		"forgets all":      {0, roundSuccess, nil},
		"remembers 404":    {404, roundViolation, []string{changeCreate, changeEdit}},
		"remembers a link": {302, roundViolation, []string{changeEdit, changeDelete}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			edge, c := w.NewStaleEdge(test.remembers), w.canary()
			w.FakeEdge(func(rw http.ResponseWriter, r *http.Request) { testenv.WriteResponse(rw, w.Resolve(r)) }) // one that is right
			c.live(test.result)

			found := len(test.changes)
			c.counted(counts{
				"violations_total": float64(found), `checks_total{result="stale"}`: float64(found), `checks_total{result="fresh"}`: float64(8 - found),
				`rounds_total{result="` + test.result + `"}`: 1, `propagation_seconds_count{change="create"}`: 1,
				`propagation_seconds_count{change="edit"}`: 1, `propagation_seconds_count{change="delete"}`: 1, "edges": 2, "edges_without_address": 0,
			})
			if succeeded := testenv.CanaryMetric(c.exposed(), "last_success_timestamp_seconds"); (succeeded > 0) != (found == 0) {
				t.Errorf("the last success was at %v", succeeded)
			}
			var ids []string
			for _, r := range edge.Requests[max(0, len(edge.Requests)-4):] {
				ids = append(ids, r.Header.Get(requestid.Header))
				if r.Host != "go.example.com" || r.UserAgent() != "Deeplink-Canary/1" || !requestid.Valid(r.Header.Get(requestid.Header)) {
					t.Errorf("the edge was asked for %s with %v", r.Host, r.Header)
				}
			}
			var logged []string
			for line := range strings.Lines(c.printed.String()) {
				if strings.Contains(line, `"level":"ERROR"`) {
					logged = append(logged, line)
				}
			}
			if len(logged) != found || len(ids) != 4 {
				t.Fatalf("%d requests, logged %q; expected 4, and one line for each of %v", len(ids), logged, test.changes)
			}
			at := map[string]int{changeCreate: 1, changeEdit: 2, changeDelete: 3}
			for i, change := range test.changes {
				expected := `"expected":"302 https://deeplink-canary.invalid/`
				if change == changeDelete {
					expected = `"expected":"404"`
				}
				for _, part := range []string{`"slot":"127.0.0.1:`, `"change":"` + change + `"`, expected, `"requestId":"` + ids[at[change]] + `"`} {
					if !strings.Contains(logged[i], part) {
						t.Errorf("logged %s, expected %s in it", logged[i], part)
					}
				}
			}
			if left := w.CanaryLinks(); left != "" {
				t.Errorf("links are left: %s", left)
			}
		})
	}
}

func TestCanaryTellsErrorsFromViolations(t *testing.T) {
	t.Parallel()
	status := func(code int) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			testenv.WriteResponse(rw, edgeclient.Response{Status: code})
		}
	}
	for name, test := range map[string]struct {
		handler       http.HandlerFunc // nil: no server listens
		check, result string
	}{
		"no server":    {nil, checkUnreachable, roundFailed},
		"hangs up":     {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, checkUnreachable, roundFailed},
		"says nothing": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, checkTimeout, roundFailed},
		"too many":     {status(429), checkLimited, roundFailed},
		"broken":       {status(500), checkBroken, roundFailed},
		"unavailable":  {status(503), checkBroken, roundFailed},
		"gone":         {status(410), checkSuspended, roundSuspended},
		"a page":       {status(200), checkUnexpected, roundFailed},
		"no edge":      {func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(404) }, checkUnexpected, roundFailed},
		"another target": {func(rw http.ResponseWriter, _ *http.Request) {
			testenv.WriteResponse(rw, edgeclient.RedirectTo("https://example.com/"))
		}, checkUnexpected, roundFailed},
		"long header": {func(rw http.ResponseWriter, _ *http.Request) {
			testenv.WriteResponse(rw, edgeclient.RedirectTo("https://example.com/"+repeat("a", 2*edgeclient.MaxHeader)))
		}, checkUnreachable, roundFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			c := w.canary()
			if test.check == checkTimeout {
				c.edges.HTTP.Timeout = 4 * time.Second // the right edge answers from Postgres
			}
			if test.handler == nil {
				w.RegisterEdge(testenv.FreeAddress(t))
			} else {
				w.FakeEdge(test.handler)
			}
			w.FakeEdge(func(rw http.ResponseWriter, r *http.Request) { testenv.WriteResponse(rw, w.Resolve(r)) })
			c.live(test.result)
			c.counted(counts{
				"violations_total": 0, `checks_total{result="` + test.check + `"}`: 4, `checks_total{result="fresh"}`: 4,
				`rounds_total{result="` + test.result + `"}`: 1, "last_success_timestamp_seconds": 0, "served_seconds_count": 1,
			})
			if left := w.CanaryLinks(); left != "" {
				t.Errorf("links are left: %s", left)
			}
		})
	}
}

func TestChangeThatIsPendingIsNoViolation(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c := w.canary()
	w.NewStaleEdge(404)
	w.DeafEdge(300*time.Millisecond, time.Hour)
	c.live(roundPending)
	// Before the create and after the delete 404 is right, and in between it may still be shown.
	c.counted(counts{
		"violations_total": 0, `checks_total{result="fresh"}`: 2, `checks_total{result="pending"}`: 2, "edges": 2, "edges_without_address": 1,
		"last_success_timestamp_seconds": 0, "served_seconds_count": 0,
	})
}

func TestRoundWithoutEdgesIsNoSuccess(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c := w.canary()
	c.live(roundUnchecked)
	w.DeafEdge(time.Millisecond, time.Millisecond) // of an earlier version: it has no address
	c.live(roundUnchecked)
	c.counted(counts{`rounds_total{result="unchecked"}`: 1, "edges": 1, "edges_without_address": 1, "last_success_timestamp_seconds": 0})
}

// An operator who deletes the canary's link makes edges right that seem to be wrong.
func TestLinkThatSomebodyElseChangedIsNoViolation(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c := w.canary()
	asked := 0 // one after the other
	w.FakeEdge(func(rw http.ResponseWriter, r *http.Request) {
		if asked++; asked == 3 {
			w.Exec(`delete from links`)
		}
		testenv.WriteResponse(rw, w.Resolve(r))
	})
	c.live(roundFailed)
	c.counted(counts{"violations_total": 0, `checks_total{result="unexpected"}`: 1, `checks_total{result="fresh"}`: 2})
}

func TestSuspendedCanaryIsQuiet(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c := w.canary()
	edge := w.NewStaleEdge(0)
	c.live(roundSuccess)
	organization, err := c.organization(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, suspended := range []bool{true, false} {
		if _, _, err := w.Store.SetSuspended(t.Context(), testenv.Actor, organization.OrgKey, suspended); err != nil {
			t.Fatal(err)
		}
		if suspended {
			asked := len(edge.Requests)
			for range 3 {
				c.live(roundSuspended)
			}
			if len(edge.Requests) != asked {
				t.Error("edges were asked while the organization was suspended")
			}
		} else {
			c.live(roundSuccess)
		}
	}
	if lines := strings.Count(c.printed.String(), "\n"); lines != 3 || strings.Contains(c.printed.String(), "WARN") {
		t.Errorf("logged %s, expected a line for each change", c.printed)
	}
}

func TestCanaryOutlivesItsBackends(t *testing.T) {
	t.Parallel()
	postgres := testkit.NewPostgres(t)
	w := &testEnv{&testenv.Env{T: t, DB: &postgres.Database, Redis: testkit.NewRedis(t)}}
	w.Pool = w.Open(w.DB.URL)
	c := w.canary()
	w.NewStaleEdge(0)
	c.live(roundSuccess)
	if err := postgres.StopImmediate(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		c.live(roundFailed)
		c.counted(counts{"violations_total": 0, `rounds_total{result="failed"}`: 1})
	}
	if err := postgres.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Pool.Reset() // the edge's
	await(t, "Postgres to be found again", func() error {
		if result, err := c.round(t.Context()); result != roundSuccess {
			return fmt.Errorf("%s: %w", result, err)
		}
		return nil
	})
	c.live(roundSuccess)
	if err := w.Redis.Kill(); err != nil {
		t.Fatal(err)
	}
	c.live(roundSuccess) // control waits for no hint to reach this edge
	if lines := strings.Count(c.printed.String(), "\n"); lines != 3 {
		t.Errorf("logged %s, expected a line for each change", c.printed)
	}
}

func TestLinksOfKilledCanariesAreSwept(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c := w.canary()
	c.live(roundUnchecked)
	leave := func(code string, age time.Duration) {
		w.Exec(`insert into links (id, organization_id, domain_id, short_code, path, created_at)
			select gen_random_uuid(), o.id, d.id, $1, '/canary', now() - $2::interval
			from organizations o join domains d on d.organization_id = o.id where o.external_id = $3`, code, age, store.CanaryOrganization)
	}
	leave("old", leftoverAge+time.Minute)
	leave("young", leftoverAge-time.Minute)
	c.live(roundUnchecked)
	if left := w.CanaryLinks(); left != "old,young" {
		t.Errorf("links left: %s, expected both: they were just looked for", left)
	}
	c.lastSweep = c.lastSweep.Add(-leftoverAge)
	c.live(roundUnchecked)
	if left := w.CanaryLinks(); left != "young" {
		t.Errorf("links left: %s, expected young alone: it may be another control's", left)
	}
	leave("old", leftoverAge+time.Minute)
	w.canary().live(roundUnchecked) // one that just started
	if left := w.CanaryLinks(); left != "young" {
		t.Errorf("links left: %s, expected young alone", left)
	}
}

func TestRoundThatIsBrokenOffLeavesNoLink(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c := w.canary()
	ctx, stop := context.WithCancel(t.Context())
	asked := 0
	w.FakeEdge(func(rw http.ResponseWriter, r *http.Request) {
		if asked++; asked == 2 {
			if w.CanaryLinks() == "" {
				t.Error("there is no link")
			}
			stop()
			<-r.Context().Done()
		}
		testenv.WriteResponse(rw, edgeclient.NotFound)
	})
	if err := c.Run(ctx); err != nil {
		t.Error(err)
	}
	if left := w.CanaryLinks(); left != "" {
		t.Errorf("links are left: %s", left)
	}
	c.counted(counts{`rounds_total{result="failed"}`: 0})
}

func TestCanariesThatStartAtOnceShareOneOrganization(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	ids := make([]string, 8)
	var group sync.WaitGroup
	begin := make(chan struct{})
	for i := range ids {
		c := w.canary()
		if _, err := c.store.Edges(t.Context()); err != nil { // so that all have their connections
			t.Fatal(err)
		}
		group.Go(func() {
			<-begin
			organization, err := c.organization(t.Context())
			if err != nil {
				t.Error(err)
			}
			ids[i] = organization.ID
		})
	}
	close(begin)
	group.Wait()
	all, err := w.Store.Organizations(t.Context())
	if err != nil || len(all) != 1 || *all[0].ExternalID != store.CanaryOrganization {
		t.Fatalf("organizations %+v, %v; expected the canary's alone", all, err)
	}
	for _, id := range ids {
		if id != all[0].ID {
			t.Errorf("a canary has organization %q, expected %s", id, all[0].ID)
		}
	}
}
