package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"deeplink/control/internal/testenv"
	"deeplink/shared/catalog"
	"deeplink/shared/click"
	"deeplink/shared/testkit"
)

// shipClicks inserts one batch of a log with the role of the edges, as clicks of the link, one for each agent, a second apart from a time on. A
// nil agent is a request without User-Agent.
func shipClicks(t *testing.T, edge *pgx.Conn, log uuid.UUID, sequence int, orgKey, link string, from time.Time, agents ...*string) {
	t.Helper()
	ctx := t.Context()
	tx, err := edge.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	exec := func(sql string, arguments ...any) {
		t.Helper()
		if _, err := tx.Exec(ctx, sql, arguments...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	exec(`insert into click_batches (slot, log, sequence, first_at, clicks) values ('edge-1', $1, $2, $3, $4)`, log, sequence, from, len(agents))
	for i, agent := range agents {
		var id *int32
		if agent != nil {
			exec(`insert into click_agents (agent) values ($1) on conflict do nothing`, *agent)
			if err := tx.QueryRow(ctx, `select id from click_agents where agent = $1`, *agent).Scan(&id); err != nil {
				t.Fatal(err)
			}
		}
		exec(`insert into clicks (log, sequence, ordinal, at, org_key, link_id, outcome, class, reason, ruleset, evidence, agent_id, country, referrer)
			values ($1, $2, $3, $4, $5, $6, 'redirect', 'human', 'browser', 1, $8, $7, 'DE', 'a.example')`, log, sequence, i, from.Add(time.Duration(i)*time.Second), orgKey, link, id,
			int16(click.EvidenceLanguage|click.EvidenceHTML))
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestCommandsOfClicks(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	o := w.Organization(catalog.Scale)
	edge, log := testkit.Connect(t, w.DB.EdgeURL), uuid.New()
	from := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -2)
	if _, err := edge.Exec(t.Context(), `insert into click_logs (log, slot, durable, through) values ($1, 'edge-1', true, $2)`, log, from); err != nil {
		t.Fatal(err)
	}
	w.Exec(`update click_logs set created_at = through`)
	w.Exec(`update click_as_of set as_of = $1`, from)
	p := w.serve()
	c := p.client(*o.ServerKey)
	link := c.CreateLink(`{"path":"/a"}`)
	path := testenv.Build(t)
	run := func(code int, arguments ...string) string {
		t.Helper()
		got := runProgram(t, path, w.Settings(), append([]string{"clicks"}, arguments...)...)
		if got.code != code || code != 0 && (got.stdout != "" || got.stderr == "") {
			t.Errorf("control clicks %s: exit code %d, printed %q and %q; expected code %d", strings.Join(arguments, " "), got.code, got.stdout, got.stderr, code)
		}
		return got.stdout
	}
	text := func(s string) *string { return &s }
	shipClicks(t, edge, log, 1, o.OrgKey, link.ID, from, text("=1+1"), text("@agent, with \"quotes\""), nil,
		text("Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36"))
	w.Exec(`update click_logs set published_at = clock_timestamp()`)
	run(1, "forget", "edge-1") // it publishes
	run(1, "forget", "edge-2")
	await(t, "the roll-up", func() error {
		var n int
		if err := w.Pool.QueryRow(t.Context(), `select count(*) from click_batches where rolled_at is null`).Scan(&n); err != nil || n > 0 {
			return fmt.Errorf("%d batches wait, %v", n, err)
		}
		return nil
	})

	// The log holds asOf back until it is forgotten.
	w.Exec(`update click_logs set published_at = now() - interval '20 seconds', through = through + interval '1 hour'`)
	run(2, "export", "--org="+o.OrgKey, "--since="+from.Format(time.DateOnly), "--until="+from.AddDate(0, 0, 1).Format(time.DateOnly))
	forgotten := testenv.DecodeReply[struct {
		Slot        string
		Logs        []struct{ Log, Since string }
		ForgottenAt time.Time
	}](t, reply{Body: []byte(run(0, "forget", "edge-1"))})
	if forgotten.Slot != "edge-1" || len(forgotten.Logs) != 1 || forgotten.Logs[0].Log != log.String() || forgotten.Logs[0].Since != from.Add(time.Hour).Format(catalog.TimeFormat) || time.Since(forgotten.ForgottenAt) > time.Minute {
		t.Errorf("forgotten: %+v", forgotten)
	}
	run(1, "forget", "edge-1")
	var audited int
	if err := w.Pool.QueryRow(t.Context(), `select count(*) from audit_log where action = 'clicks.forget' and organization_id = '00000000-0000-0000-0000-000000000000'`).Scan(&audited); err != nil || audited != 1 {
		t.Errorf("%d audit entries, %v; expected one of all organizations", audited, err)
	}
	await(t, "asOf", func() error {
		var recent bool
		if err := w.Pool.QueryRow(t.Context(), `select as_of > now() - interval '1 minute' from click_as_of`).Scan(&recent); err != nil || !recent {
			return fmt.Errorf("not recent, %v", err)
		}
		return nil
	})

	// The lines are the rows of the API.
	r := c.Do("GET", "/analytics/clicks/raw?class=all&order=asc", "")
	var raw struct{ Data []json.RawMessage }
	if err := json.Unmarshal(r.Body, &raw); err != nil || r.Status != http.StatusOK || len(raw.Data) != 4 {
		t.Fatalf("raw clicks: %s, expected 4", r)
	}
	expected := ""
	for _, row := range raw.Data {
		expected += string(row) + "\n"
	}
	since := "--since=" + from.Format(time.DateOnly)
	if got := run(0, "export", "--org="+o.OrgKey, since); got != expected {
		t.Errorf("exported\n%s\nexpected\n%s", got, expected)
	}
	if got := run(0, "export", "--org="+o.OrgKey, "--since="+from.Add(time.Second).Format(time.RFC3339), "--until="+from.Add(2*time.Second).Format(time.RFC3339)); got != string(raw.Data[1])+"\n" {
		t.Errorf("exported %s, expected the second click", got)
	}
	table := run(0, "export", "--org="+o.OrgKey, since, "--format=csv")
	rows, err := csv.NewReader(strings.NewReader(table)).ReadAll()
	if err != nil || len(rows) != 5 || strings.Join(rows[0], ",") != "id,at,linkId,outcome,class,reason,ruleset,country,language,referrer,os,browser,device,agent,late" || strings.Count(table, "\r\n") != 5 {
		t.Fatalf("CSV, %v:\n%s", err, table)
	}
	if rows[1][13] != "'=1+1" || rows[2][13] != `'@agent, with "quotes"` || rows[3][13] != "" || rows[1][8] != "" || rows[1][1] != from.Format(catalog.TimeFormat) || rows[1][14] != "false" {
		t.Errorf("CSV rows: %q", rows)
	}
	for _, arguments := range [][]string{
		{since, "--until=" + time.Now().Add(time.Hour).UTC().Format(time.RFC3339)}, {"--since=2020-01-01"}, {"--since=yesterday"}, {since, "--until=x"}, {since, "--format=xml"},
		{since, "--until=2020-01-01"}, {"--since=" + from.Add(-time.Millisecond).Format(catalog.TimeFormat)},
	} {
		got := runProgram(t, path, w.Settings(), append([]string{"clicks", "export", "--org=" + o.OrgKey}, arguments...)...)
		if got.code != 2 || got.stdout != "" {
			t.Errorf("export %v: exit code %d, printed %q; expected 2 and nothing", arguments, got.code, got.stdout)
		}
	}
	// Without retention, an export of today would have no click, although there may have been some.
	none := runProgram(t, path, append(w.Settings(), "CLICKS_RETENTION=0s"), "clicks", "export", "--org="+o.OrgKey, "--since="+time.Now().UTC().Format(time.DateOnly), "--format=csv")
	if none.code != 2 || none.stdout != "" {
		t.Errorf("export without retention: exit code %d, printed %q; expected 2 and nothing", none.code, none.stdout)
	}

	// A reclassification.
	w.Exec(`update clicks set evidence = evidence | 1 where ordinal = 3`)
	got := run(0, "reclassify", since)
	if want := `{"since":"` + from.Format(time.DateOnly) + `","clicks":4,"changed":1,"moves":[{"from":"human","to":"head","clicks":1}]}`; strings.TrimSpace(strings.Join(strings.Fields(got), "")) != want {
		t.Errorf("reclassify printed %s, expected %s", got, want)
	}
	if got := run(0, "reclassify", since, "--org="+o.OrgKey); !strings.Contains(strings.Join(strings.Fields(got), ""), `"clicks":4,"changed":0,"moves":[]}`) {
		t.Errorf("a second reclassification printed %s, expected no change", got)
	}
	release := w.Hold(`select pg_advisory_xact_lock(hashtextextended('clicks reclassify', 0))`)
	run(1, "reclassify", since)
	release()
	run(0, "reclassify", since)
	figures := c.Do("GET", "/analytics/clicks?class=all", "")
	if body := string(figures.Body); !strings.Contains(body, `"reclassifiedAt":"`) || !strings.Contains(body, `"head":1`) {
		t.Errorf("figures: %s, expected the time of the reclassification", figures)
	}
}
