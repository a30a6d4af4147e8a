package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"deeplink/control/internal/store"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
	"deeplink/shared/testdb"
)

// batchOf is a batch of events with the ids.
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
	w := newWorld(t)
	organization := w.organization(catalog.Scale)
	controls := []*client{w.serve().client(*organization.ClientKey), w.serve().client(*organization.ClientKey)}
	warm(t, controls, 5)
	ids := newIDs(100)
	accepted, duplicates := 0, 0
	_, replies := burst(10, func(i int) reply { return controls[i%2].do("POST", "/sdk/events", batchOf(ids...)) })
	for _, r := range replies {
		if r.status != http.StatusOK {
			t.Fatalf("%s, expected 200", r)
		}
		got := into[receipt](t, r)
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
	w := newWorld(t)
	organization := w.organization(catalog.Scale)
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
		expected := receipt{Accepted: 99, Rejected: []rejection{{Index: 50, Message: test.message}}}
		if diff := cmp.Diff(expected, got); diff != "" {
			t.Errorf("99 good events and %.200q (-expected +got):\n%s", test.event, diff)
		}
		var fields []string
		for _, event := range []string{"events[0]", "events[1]"} {
			for field := range strings.SplitSeq(test.fields, " ") {
				fields = append(fields, event+field)
			}
		}
		r := c.do("POST", "/sdk/events", `{"deviceId":"phone","events":[`+test.event+`,`+test.event+`]}`)
		if checkEnvelope(t, test.event, r, "/sdk/events"); r.status != http.StatusBadRequest || r.fields() != strings.Join(fields, ",") {
			t.Errorf("only %.200q: %s, expected 400 with details of %q", test.event, r, fields)
		}
	}
	if n := len(w.storedEvents(organization)); n != 99*len(bad) {
		t.Errorf("%d events are stored, expected %d", n, 99*len(bad))
	}
	// An id that stands twice in a batch, one in capitals, and events without.
	id := uuid.NewString()
	got := c.report(`{"deviceId":"phone","events":[{"id":"` + id + `","name":"first"},{"id":"` + strings.ToUpper(id) + `","name":"second"},{"name":"x"},{"name":"x"}]}`)
	if diff := cmp.Diff(receipt{Accepted: 3, Duplicates: 1, Rejected: []rejection{}}, got); diff != "" {
		t.Errorf("an id twice (-expected +got):\n%s", diff)
	}
	if got := c.report(batchOf(id)); got.Accepted != 0 || got.Duplicates != 1 {
		t.Errorf("the id again: %+v, expected a duplicate", got)
	}
	for outcome, n := range map[string]int{"accepted": 99*len(bad) + 3, "duplicate": 2, "rejected": 3 * len(bad)} {
		if line := fmt.Sprintf(`deeplink_control_events_total{outcome="%s"} %d`, outcome, n); !strings.Contains(p.metrics(), line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
}

// TestMembersBesideEventsAreJudgedByOneRule sends them beside good events and bad ones.
func TestMembersBesideEventsAreJudgedByOneRule(t *testing.T) {
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
				t.Errorf("%s: %q: %v, expected it taken: %t", name, body, err, test.taken)
			}
		}
	}
}

func TestEventsAreOfTheirOrganizationAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	own, foreign := w.organization(catalog.Scale), w.organization(catalog.Scale)
	p := w.serve()
	ours, theirs := p.client(*own.ClientKey), p.client(*foreign.ClientKey)
	link := p.client(*foreign.ServerKey).created(`{"path":"/a"}`)
	session := sdk[openedSession](theirs, "/sdk/session", `{"deviceId":"phone"}`)
	sdk[identity](theirs, "/sdk/identity", `{"deviceId":"phone","userId":"bob"}`)
	id := uuid.NewString()
	event := `{"deviceId":"phone","sessionId":"` + session.ID + `","events":[{"id":"` + id + `","name":"open","linkId":"` + link.ID + `"}]}`
	if got := theirs.report(event); got.Accepted != 1 {
		t.Errorf("theirs: %+v, expected it accepted", got)
	}
	before := w.storedEvents(foreign)
	// Ids, sessions and links of others are as good as unknown ones: taken as sent, and nothing is told.
	if got := ours.report(event); got.Accepted != 1 || got.Duplicates != 0 {
		t.Errorf("ours, with ids of another organization: %+v, expected it accepted", got)
	}
	if diff := cmp.Diff([]string{fmt.Sprintf("open phone %s %s", session.ID, link.ID)}, w.storedEvents(own)); diff != "" {
		t.Errorf("ours (-expected +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, w.storedEvents(foreign)); diff != "" {
		t.Errorf("theirs is not what it was:\n%s", diff)
	}
}

// TestAcknowledgedEventsSurviveAKill kills one of two controls again and again under clients that retry, as phones do.
func TestAcknowledgedEventsSurviveAKill(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	organization := w.organization(catalog.Scale)
	path := build(t)
	p, program := w.launch(path)
	stop := make(chan struct{})
	var mu sync.Mutex
	acknowledged := make(map[string]bool)
	base := p.base // of the control that runs

	var phones sync.WaitGroup
	for range 8 {
		c := p.client(w.key(organization.ID, apikey.Client))
		w.exec(`update api_keys set valid_until = null`) // more than two keys, which nobody else has
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
					c.base = base
					mu.Unlock()
					r, err := c.try("POST", "/sdk/events", batchOf(ids...))
					acked = err == nil && r.status == http.StatusOK
					if acked {
						mu.Lock()
						for _, id := range ids {
							acknowledged[id] = true
						}
						mu.Unlock()
					} else if err == nil && r.status < 500 && r.status != http.StatusTooManyRequests {
						t.Errorf("%s, expected an answer worth a retry", r)
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
		var next *process
		next, program = w.launch(path)
		mu.Lock()
		base = next.base
		mu.Unlock()
	}
	close(stop)
	phones.Wait()

	rows, err := w.pool.Query(context.Background(), `select id::text, count(*) from events group by 1`)
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

func TestEventsAreExported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	organization, foreign := w.organization(catalog.Scale), w.organization(catalog.Scale)
	p := w.serve()
	c := p.client(*organization.ClientKey)
	sdk[identity](c, "/sdk/identity", `{"deviceId":"phone","userId":"ann"}`)
	c.report(`{"deviceId":"phone","sessionId":"` + nowhere + `","events":[{"id":"` + nowhere + `","name":"purchase","timestamp":"1970-01-01T00:00:00Z","linkId":"` + nowhere +
		`","revenue":12.50,"currency":"eur","properties":{"b":1.0,"a":"<&>\u2028"}}]}`)
	p.client(*foreign.ClientKey).report(`{"deviceId":"phone","events":[{"name":"theirs"}]}`)
	// More than a page, of two days and of very few times.
	w.exec(`select make_event_partitions(1)`)
	w.exec(`insert into events (organization_id, id, device_id, name, occurred_at, received_at)
		select $1, gen_random_uuid(), 'many', 'many', now(), date_trunc('day', now(), 'UTC') + (i % 3) * interval '16 hours' from generate_series(1, 2500) i`, organization.ID)

	path := build(t)
	export := func(arguments ...string) []string {
		t.Helper()
		got := runProgram(t, path, w.settings(), append([]string{"events", "export", "--format=ndjson"}, arguments...)...)
		if got.code != 0 {
			t.Fatalf("control events export %v: exit code %d; stderr: %s", arguments, got.code, got.stderr)
		}
		return strings.Split(strings.TrimSuffix(got.stdout, "\n"), "\n")
	}
	tomorrow := time.Now().UTC().AddDate(0, 0, 2).Format(time.DateOnly)
	all := export("--org="+strings.ToUpper(organization.OrgKey), "--since=2020-01-01", "--until="+tomorrow)
	seen := make(map[string]bool)
	last, purchases := "", 0
	for _, line := range all {
		e := into[store.StoredEvent](t, reply{body: []byte(line)})
		order := e.ReceivedAt.Format(catalog.TimeFormat) + e.ID
		if seen[e.ID] || order <= last || e.Name == "theirs" {
			t.Fatalf("%s after %s, expected each event once, in the order of arrival", line, last)
		}
		seen[e.ID], last = true, order
		if e.Name != "purchase" {
			continue
		}
		purchases++
		arrived := e.ReceivedAt.Format(catalog.TimeFormat)
		expected := `{"id":"` + nowhere + `","name":"purchase","deviceId":"phone","sessionId":"` + nowhere + `","userId":"ann","timestamp":"` +
			e.ReceivedAt.AddDate(0, 0, -30).Format(catalog.TimeFormat) + `","claimedTimestamp":"1970-01-01T00:00:00.000Z","linkId":"` + nowhere +
			`","revenue":12.5,"currency":"EUR","properties":{"b":1.0,"a":"<&>\u2028"},"receivedAt":"` + arrived + `"}`
		if line != expected {
			t.Errorf("exported\n%s\nexpected\n%s", line, expected)
		}
		if only := export("--org="+organization.OrgKey, "--since="+arrived, "--until="+e.ReceivedAt.Add(time.Millisecond).Format(catalog.TimeFormat)); len(only) != 1 || only[0] != line {
			t.Errorf("from its time until a millisecond later: %q, expected it alone", only)
		}
		if earlier := export("--org="+organization.OrgKey, "--since="+e.ReceivedAt.Add(-time.Millisecond).Format(catalog.TimeFormat), "--until="+arrived); slices.Contains(earlier, line) {
			t.Errorf("until its time: %q, expected it not to be there", earlier)
		}
		if none := export("--org="+organization.OrgKey, "--since="+e.ReceivedAt.Add(time.Microsecond).Format(time.RFC3339Nano), "--until="+e.ReceivedAt.Add(time.Millisecond).Format(catalog.TimeFormat)); len(none) != 1 || none[0] != "" {
			t.Errorf("from just after its time: %q, expected nothing", none)
		}
	}
	if len(all) != 2501 || purchases != 1 {
		t.Errorf("%d lines with %d purchases, expected 2,501 and 1", len(all), purchases)
	}
	for _, bad := range [][]string{
		{"--org=none", "--since=2020-01-01"}, {"--org=" + organization.OrgKey}, {"--org=" + organization.OrgKey, "--since=yesterday"},
		{"--org=" + organization.OrgKey, "--since=2020-01-01", "--until=x"}, {"--org=" + organization.OrgKey, "--since=2020-01-01", "--format=csv"},
		{"--org=" + organization.OrgKey, "--since=2020-01-01T1:00:00Z"}, {"--org=" + organization.OrgKey, "--since=2020-01-01T01:00:00,5Z"},
		{"--org=" + organization.OrgKey, "--since=2020-01-02", "--until=2020-01-01T23:59:59Z"}, {"--org=" + organization.OrgKey, "--since=" + tomorrow},
	} {
		if got := runProgram(t, path, w.settings(), append([]string{"events", "export"}, bad...)...); got.code == 0 || got.stdout != "" {
			t.Errorf("control events export %v: %+v, expected to fail", bad, got)
		}
	}
}

// What may still be on its way into the database is left for the next export.
func TestExportEndsAMinuteAgo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	organization := w.organization(catalog.Scale)
	w.exec(`create table events_ever partition of events default`) // the day may have begun a moment ago
	w.exec(`insert into events (organization_id, id, device_id, name, occurred_at, received_at)
		select $1, gen_random_uuid(), 'phone', name, now(), now() - age from (values ('old', interval '1 minute'), ('young', interval '0')) e (name, age)`, organization.ID)
	var out bytes.Buffer
	if code := run(t.Context(), []string{"--database-url=" + w.db.ControlURL, "events", "export", "--org=" + organization.OrgKey, "--since=2020-01-01"}, &out, io.Discard); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	if lines := strings.Split(out.String(), "\n"); len(lines) != 2 || !strings.Contains(lines[0], `"name":"old"`) {
		t.Errorf("%s, expected the event of a minute ago alone", &out)
	}
}

func TestExportOutlivesPostgres(t *testing.T) {
	t.Parallel()
	postgres := testdb.NewServer(t)
	w := &world{t: t, db: &postgres.Database}
	w.pool = w.open(w.db.URL)
	w.store = store.New(w.pool, testLinkBase)
	organization := w.organization(catalog.Scale)
	w.exec(`insert into events (organization_id, id, device_id, name, occurred_at, received_at)
		select $1, gen_random_uuid(), 'phone', 'open', now(), now() from generate_series(1, 2500)`, organization.ID)
	out, in := io.Pipe()
	defer out.Close()
	ended := make(chan int, 1)
	var stderr lockedBuffer
	go func() {
		ended <- run(t.Context(), []string{"--database-url=" + w.db.ControlURL, "events", "export", "--org=" + organization.OrgKey,
			"--since=2020-01-01", "--until=9999-12-31"}, in, &stderr)
		in.Close()
	}()
	lines := bufio.NewScanner(out)
	n := 0
	for ; n < 1000 && lines.Scan(); n++ { // the second page is not asked for before the first is read
		if n == 0 {
			if err := postgres.StopImmediate(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := postgres.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		n++
	}
	if code := <-ended; code != 0 || n != 2500 {
		t.Errorf("exit code %d after %d events: %s; expected all 2,500", code, n, &stderr)
	}
}

// TestExportTakesTheSameMemoryHoweverMuchThereIs prints some 200 MB.
func TestExportTakesTheSameMemoryHoweverMuchThereIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	organization := w.organization(catalog.Scale)
	w.exec(`insert into events (organization_id, id, device_id, name, occurred_at, received_at, properties)
		select $1, gen_random_uuid(), 'phone', 'open', now(), now(), json_build_object('a', repeat('a', 2000)) from generate_series(1, 100000)`, organization.ID)
	cmd := exec.CommandContext(t.Context(), build(t), "events", "export", "--org="+organization.OrgKey, "--since=2020-01-01", "--until=9999-12-31")
	reader := &exportReader{cmd: cmd}
	var stderr bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = w.settings(), reader, &stderr
	if err := cmd.Run(); err != nil || reader.lines != 100_000 {
		t.Fatalf("%d lines, %v: %s; expected 100,000", reader.lines, err, stderr.String())
	}
	if reader.peak < 1 || reader.peak > 100<<10 {
		t.Errorf("the export took %d KiB at its peak, expected 100 MiB at most", reader.peak)
	}
}

// exportReader counts the lines that a process prints, and looks now and then at how much memory the process took at most. Its resource
// usage does not tell: on Linux that begins with the memory of this test.
type exportReader struct {
	cmd           *exec.Cmd
	writes, lines int
	peak          int // KiB
}

func (r *exportReader) Write(p []byte) (int, error) {
	if r.writes++; r.writes%64 == 0 {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.cmd.Process.Pid))
		// It may have ended, and what it wrote last is still read.
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ESRCH) {
			return 0, err
		}
		if _, line, found := strings.Cut(string(status), "VmHWM:"); found {
			fmt.Sscan(line, &r.peak)
		}
	}
	r.lines += bytes.Count(p, []byte("\n"))
	return len(p), nil
}
