package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"deeplink/control/internal/store"
	"deeplink/control/internal/testenv"
	"deeplink/shared/catalog"
	"deeplink/shared/testkit"
)

func TestEventsAreExported(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	organization, foreign := w.Organization(catalog.Scale), w.Organization(catalog.Scale)
	p := w.serve()
	c := p.client(*organization.ClientKey)
	c.Do("POST", "/sdk/identity", `{"deviceId":"phone","userId":"ann"}`)
	c.Do("POST", "/sdk/events", `{"deviceId":"phone","sessionId":"`+unknownID+`","events":[{"id":"`+unknownID+`","name":"purchase","timestamp":"1970-01-01T00:00:00Z","linkId":"`+unknownID+
		`","revenue":12.50,"currency":"eur","properties":{"b":1.0,"a":"<&>\u2028"}}]}`)
	p.client(*foreign.ClientKey).Do("POST", "/sdk/events", `{"deviceId":"phone","events":[{"name":"theirs"}]}`)
	// More than a page, of two days and of very few times.
	w.Exec(`select make_event_partitions(1)`)
	w.Exec(`insert into events (organization_id, id, device_id, name, occurred_at, received_at)
		select $1, gen_random_uuid(), 'many', 'many', now(), date_trunc('day', now(), 'UTC') + (i % 3) * interval '16 hours' from generate_series(1, 2500) i`, organization.ID)

	path := testenv.Build(t)
	export := func(arguments ...string) []string {
		t.Helper()
		got := runProgram(t, path, w.Settings(), append([]string{"events", "export", "--format=ndjson"}, arguments...)...)
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
		e := testenv.DecodeReply[store.StoredEvent](t, reply{Body: []byte(line)})
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
		expected := `{"id":"` + unknownID + `","name":"purchase","deviceId":"phone","sessionId":"` + unknownID + `","userId":"ann","timestamp":"` +
			e.ReceivedAt.AddDate(0, 0, -30).Format(catalog.TimeFormat) + `","claimedTimestamp":"1970-01-01T00:00:00.000Z","linkId":"` + unknownID +
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
		if got := runProgram(t, path, w.Settings(), append([]string{"events", "export"}, bad...)...); got.code == 0 || got.stdout != "" {
			t.Errorf("control events export %v: %+v, expected to fail", bad, got)
		}
	}
}

// What may still be on its way into the database is left for the next export.
func TestExportEndsAMinuteAgo(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	organization := w.Organization(catalog.Scale)
	w.Exec(`create table events_ever partition of events default`) // the day may have begun a moment ago
	w.Exec(`insert into events (organization_id, id, device_id, name, occurred_at, received_at)
		select $1, gen_random_uuid(), 'phone', name, now(), now() - age from (values ('old', interval '1 minute'), ('young', interval '0')) e (name, age)`, organization.ID)
	var out bytes.Buffer
	if code := run(t.Context(), []string{"--database-url=" + w.DB.ControlURL, "events", "export", "--org=" + organization.OrgKey, "--since=2020-01-01"}, &out, io.Discard); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	if lines := strings.Split(out.String(), "\n"); len(lines) != 2 || !strings.Contains(lines[0], `"name":"old"`) {
		t.Errorf("%s, expected the event of a minute ago alone", &out)
	}
}

func TestExportOutlivesPostgres(t *testing.T) {
	t.Parallel()
	postgres := testkit.NewPostgres(t)
	w := &testEnv{&testenv.Env{T: t, DB: &postgres.Database}}
	w.Pool = w.Open(w.DB.URL)
	w.Store = store.New(w.Pool, testLinkBase)
	organization := w.Organization(catalog.Scale)
	w.Exec(`insert into events (organization_id, id, device_id, name, occurred_at, received_at)
		select $1, gen_random_uuid(), 'phone', 'open', now(), now() from generate_series(1, 2500)`, organization.ID)
	out, in := io.Pipe()
	defer out.Close()
	ended := make(chan int, 1)
	var stderr logBuffer
	go func() {
		ended <- run(t.Context(), []string{"--database-url=" + w.DB.ControlURL, "events", "export", "--org=" + organization.OrgKey,
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
	w := newTestEnv(t)
	organization := w.Organization(catalog.Scale)
	w.Exec(`insert into events (organization_id, id, device_id, name, occurred_at, received_at, properties)
		select $1, gen_random_uuid(), 'phone', 'open', now(), now(), json_build_object('a', repeat('a', 2000)) from generate_series(1, 100000)`, organization.ID)
	cmd := exec.CommandContext(t.Context(), testenv.Build(t), "events", "export", "--org="+organization.OrgKey, "--since=2020-01-01", "--until=9999-12-31")
	reader := &exportReader{cmd: cmd}
	var stderr bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = w.Settings(), reader, &stderr
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
