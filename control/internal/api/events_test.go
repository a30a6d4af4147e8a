package api

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"deeplink/control/internal/testenv"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
)

// batchOf returns a batch of events with the ids.
func batchOf(ids ...string) string {
	events := make([]string, len(ids))
	for i, id := range ids {
		events[i] = fmt.Sprintf(`{"id":%q,"name":"open"}`, id)
	}
	return `{"deviceId":"phone","events":[` + strings.Join(events, ",") + `]}`
}

func newIDs(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = uuid.NewString()
	}
	return ids
}

func TestABatchSentTenTimesIsStoredOnce(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	organization := w.Organization(catalog.Scale)
	controls := []*client{w.serve().client(*organization.ClientKey), w.serve().client(*organization.ClientKey)}
	warm(t, controls, 5)
	ids := newIDs(100)
	accepted, duplicates := 0, 0
	_, replies := burst(10, func(i int) reply { return controls[i%2].Do("POST", "/sdk/events", batchOf(ids...)) })
	for _, r := range replies {
		if r.Status != http.StatusOK {
			t.Fatalf("%s, expected 200", r)
		}
		got := testenv.DecodeReply[eventsResponse](t, r)
		if got.Accepted+got.Duplicates != 100 || got.Accepted != 0 && got.Accepted != 100 || len(got.Rejected) != 0 {
			t.Errorf("%+v, expected all accepted or all duplicates", got)
		}
		accepted, duplicates = accepted+got.Accepted, duplicates+got.Duplicates
	}
	if stored := len(w.storedEvents(organization)); accepted != 100 || duplicates != 900 || stored != 100 {
		t.Errorf("%d accepted, %d duplicates, %d stored; expected 100, 900 and 100", accepted, duplicates, stored)
	}
}

func TestABadEventNeverBlocksTheOthers(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	organization := w.Organization(catalog.Scale)
	p := w.serve()
	c := p.client(*organization.ClientKey)
	bad := []struct{ event, message, fields string }{
		{`{"nom":"open"}`, "name is required", ".name"},
		{`{"name":"open","id":"7","revenue":"1"}`, "revenue must be a number of less than 1000000000000; id must be a UUID", ".revenue .id"},
		{`null`, "must be a JSON object", ""},
		{`{"name":"a\u0000"}`, "name contains the character U+0000", ".name"},
		{`{"name":"a","name":"b"}`, "name is given more than once", ".name"},
		{`{"name":"a","\u0000":1}`, "contains the character U+0000", ""},
		{"{\"name\":\"a\",\"x\":\"\xff\"}", "x is not valid UTF-8", ".x"},
		{`{"name":"a","x":"\ud800"}`, "x contains half of a surrogate pair", ".x"},
		{`{"name":"a","x":[1e999]}`, "x[0] is a number out of range", ".x[0]"},
		{`{"name":"a","properties":` + repeat(`{"a":`, 8) + `{}` + repeat(`}`, 8) + `}`, "properties" + repeat(".a", 8) + " is nested too deeply", ".properties" + repeat(".a", 8)},
		{`{"name":"a","properties":{"a":"` + repeat("a", 8<<10) + `"}}`, "properties must be at most 8192 bytes", ".properties"},
	}
	for _, test := range bad {
		good := strings.TrimSuffix(strings.TrimPrefix(batchOf(newIDs(99)...), `{"deviceId":"phone","events":[`), `]}`)
		parts := strings.SplitAfterN(good, "},", 51)
		got := c.report(`{"deviceId":"phone","events":[` + strings.Join(parts[:50], "") + test.event + "," + parts[50] + `]}`)
		expected := eventsResponse{Accepted: 99, Rejected: []rejectedEvent{{Index: 50, Message: test.message}}}
		if diff := cmp.Diff(expected, got); diff != "" {
			t.Errorf("99 good events and %.200q (-expected +got):\n%s", test.event, diff)
		}
		var fields []string
		for _, event := range []string{"events[0]", "events[1]"} {
			for field := range strings.SplitSeq(test.fields, " ") {
				fields = append(fields, event+field)
			}
		}
		r := c.Do("POST", "/sdk/events", `{"deviceId":"phone","events":[`+test.event+`,`+test.event+`]}`)
		if testenv.CheckEnvelope(t, test.event, r, "/sdk/events"); r.Status != http.StatusBadRequest || r.Fields() != strings.Join(fields, ",") {
			t.Errorf("only %.200q: %s, expected 400 with details of %q", test.event, r, fields)
		}
	}
	if n := len(w.storedEvents(organization)); n != 99*len(bad) {
		t.Errorf("%d events are stored, expected %d", n, 99*len(bad))
	}
	// One id twice in a batch, once in capitals, and events without an id.
	id := uuid.NewString()
	got := c.report(`{"deviceId":"phone","events":[{"id":"` + id + `","name":"first"},{"id":"` + strings.ToUpper(id) + `","name":"second"},{"name":"x"},{"name":"x"}]}`)
	if diff := cmp.Diff(eventsResponse{Accepted: 3, Duplicates: 1, Rejected: []rejectedEvent{}}, got); diff != "" {
		t.Errorf("an id twice (-expected +got):\n%s", diff)
	}
	if got := c.report(batchOf(id)); got.Accepted != 0 || got.Duplicates != 1 {
		t.Errorf("the id again: %+v, expected a duplicate", got)
	}
	for outcome, n := range map[string]int{"accepted": 99*len(bad) + 3, "duplicate": 2, "rejected": 3 * len(bad)} {
		if line := fmt.Sprintf(`deeplink_control_events_total{outcome="%s"} %d`, outcome, n); !strings.Contains(p.Metrics(), line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
}

// TestMembersNextToEventsFollowOneRule sends unknown members with valid events and with invalid ones.
func TestMembersNextToEventsFollowOneRule(t *testing.T) {
	t.Parallel()
	const good, bad = `{"name":"open"}`, `{"name":"a\u0000"}`
	for name, test := range map[string]struct {
		member string
		taken  bool
	}{
		"8 levels":                 {`"x":` + repeat("[", 8) + repeat("]", 8), true},
		"9 levels":                 {`"x":` + repeat("[", 9) + repeat("]", 9), false},
		"NUL in a name":            {`"x\u0000":1`, false},
		"half a surrogate in name": {`"x\ud800":1`, false},
		"broken UTF-8 in a name":   {"\"x\xff\":1", false},
		"events twice":             {`"events":[` + good + `]`, false},
	} {
		for _, events := range []string{good, good + "," + bad} {
			body := `{"deviceId":"phone",` + test.member + `,"events":[` + events + `]}`
			if _, _, _, err := readBatch([]byte(body)); (err == nil) != test.taken {
				t.Errorf("%s: %q: %v, expected it accepted: %t", name, body, err, test.taken)
			}
		}
	}
}

func TestEventsAreOfTheirOrganizationAlone(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	own, foreign := w.Organization(catalog.Scale), w.Organization(catalog.Scale)
	p := w.serve()
	ours, theirs := p.client(*own.ClientKey), p.client(*foreign.ClientKey)
	link := p.client(*foreign.ServerKey).CreateLink(`{"path":"/a"}`)
	session := sdk[sessionResponse](theirs, "/sdk/session", `{"deviceId":"phone"}`)
	sdk[identityResponse](theirs, "/sdk/identity", `{"deviceId":"phone","userId":"bob"}`)
	id := uuid.NewString()
	event := `{"deviceId":"phone","sessionId":"` + session.ID + `","events":[{"id":"` + id + `","name":"open","linkId":"` + link.ID + `"}]}`
	if got := theirs.report(event); got.Accepted != 1 {
		t.Errorf("theirs: %+v, expected it accepted", got)
	}
	before := w.storedEvents(foreign)
	// Ids, sessions and links of another organization are treated as unknown: they are accepted as sent, and the response reveals nothing.
	if got := ours.report(event); got.Accepted != 1 || got.Duplicates != 0 {
		t.Errorf("ours, with ids of another organization: %+v, expected it accepted", got)
	}
	if diff := cmp.Diff([]string{fmt.Sprintf("open phone %s %s", session.ID, link.ID)}, w.storedEvents(own)); diff != "" {
		t.Errorf("ours (-expected +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, w.storedEvents(foreign)); diff != "" {
		t.Errorf("the other organization's data has changed:\n%s", diff)
	}
}

// TestAcknowledgedEventsSurviveAKill repeatedly kills one of two controls while clients retry, as phones do.
func TestAcknowledgedEventsSurviveAKill(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	organization := w.Organization(catalog.Scale)
	path := testenv.Build(t)
	p, program := w.Launch(path)
	stop := make(chan struct{})
	var mu sync.Mutex
	acknowledged := make(map[string]bool)
	base := p.Base // address of the control that runs

	var phones sync.WaitGroup
	for range 8 {
		c := p.Client(w.APIKey(organization.ID, apikey.Client))
		w.Exec(`update api_keys set valid_until = null`) // more than the two keys of a tier that can otherwise be valid
		phones.Go(func() {
			for {
				ids := newIDs(20)
				for acked := false; !acked; {
					select {
					case <-stop:
						return
					default:
					}
					mu.Lock()
					c.Base = base
					mu.Unlock()
					r, err := c.Try("POST", "/sdk/events", batchOf(ids...))
					acked = err == nil && r.Status == http.StatusOK
					if acked {
						mu.Lock()
						for _, id := range ids {
							acknowledged[id] = true
						}
						mu.Unlock()
					} else if err == nil && r.Status < 500 && r.Status != http.StatusTooManyRequests {
						t.Errorf("%s, expected a response that allows a retry", r)
						return
					}
					if !acked {
						time.Sleep(time.Duration(1+rand.IntN(10)) * time.Millisecond)
					}
				}
			}
		})
	}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(acknowledged)
	}
	for range 3 {
		before := count()
		await(t, "some batches to be acknowledged", func() error {
			if n := count() - before; n < 400 {
				return fmt.Errorf("%d are", n)
			}
			return nil
		})
		if err := program.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-program.Exited()
		var next *testenv.Control
		next, program = w.Launch(path)
		mu.Lock()
		base = next.Base
		mu.Unlock()
	}
	close(stop)
	phones.Wait()

	rows, err := w.Pool.Query(context.Background(), `select id::text, count(*) from events group by 1`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	stored := make(map[string]int)
	for rows.Next() {
		var id string
		var n int
		if err := rows.Scan(&id, &n); err != nil {
			t.Fatal(err)
		}
		stored[id] = n
		if n != 1 {
			t.Errorf("%s is stored %d times", id, n)
		}
	}
	for id := range acknowledged {
		if stored[id] != 1 {
			t.Errorf("%s was acknowledged and is stored %d times", id, stored[id])
		}
	}
	t.Logf("%d acknowledged, %d stored", len(acknowledged), len(stored))
}
