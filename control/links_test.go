package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deeplink/control/internal/store"
	"deeplink/control/internal/testenv"
	"deeplink/control/internal/transfer"
	"deeplink/shared/catalog"
)

// command runs a command of control in this process.
func (w *testEnv) command(arguments ...string) outcome {
	w.T.Helper()
	var stdout, stderr logBuffer
	arguments = append(arguments, "--database-url="+w.DB.ControlURL)
	if !strings.Contains(strings.Join(arguments, " "), "--link-base-url") {
		arguments = append(arguments, "--link-base-url="+testLinkBase)
	}
	if given := strings.Join(arguments, " "); !strings.HasPrefix(given, "links export") && !strings.Contains(given, "--redis-url") {
		arguments = append(arguments, "--redis-url="+w.Redis.URL())
	}
	code := run(context.Background(), arguments, &stdout, &stderr)
	return outcome{code, stdout.String(), stderr.String()}
}

func (w *testEnv) export(o store.CreatedOrganization, format string) string {
	w.T.Helper()
	got := w.command("links", "export", "--org="+o.OrgKey, "--format="+format)
	if got.code != 0 {
		w.T.Fatalf("export: %+v", got)
	}
	return got.stdout
}

// imports imports a file and returns the result without its times, and the rejected rows.
func (w *testEnv) imports(o store.CreatedOrganization, format, file string, flags ...string) (transfer.Result, []transfer.RejectedRow) {
	w.T.Helper()
	folder := w.T.TempDir()
	path, report := filepath.Join(folder, "links"), filepath.Join(folder, "report")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		w.T.Fatal(err)
	}
	got := w.command(append([]string{"links", "import", "--org=" + o.OrgKey, "--format=" + format, "--report=" + report, path}, flags...)...)
	result := testenv.DecodeReply[transfer.Result](w.T, reply{Body: []byte(got.stdout)})
	text, err := os.ReadFile(report)
	if err != nil {
		w.T.Fatal(err)
	}
	var refused []transfer.RejectedRow
	for line := range bytes.Lines(text) {
		refused = append(refused, testenv.DecodeReply[transfer.RejectedRow](w.T, reply{Body: line}))
	}
	if len(refused) != result.Rejected || (got.code != 0) != (result.Rejected > 0) {
		w.T.Errorf("%+v with %d rejected rows in the report", got, len(refused))
	}
	result.Seconds, result.PerSecond = 0, 0
	return result, refused
}

func TestLinksExportedAndImportedElsewhereAreEqual(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	from := w.Organization(catalog.Scale)
	own, _, _, err := w.Store.AddDomain(context.Background(), testenv.Actor, from.ID, store.Unconditional, "go.acme.example", true)
	if err != nil {
		t.Fatal(err)
	}
	other, _, _, err := w.Store.AddDomain(context.Background(), testenv.Actor, from.ID, store.Unconditional, "other.acme.example", true)
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{
		`{"path":"/plain"}`,
		`{"path":"a?b=<&>#c","shortCode":"Full-1","domainId":"` + own.ID + `","channel":"paid_social","utmSource":"a,b","utmMedium":"\"q\"","utmCampaign":"c",
			"utmTerm":"=1+1","utmContent":" e ","fallbackUrl":"https://x.example/<>?a=b&c=%20","og":{"title":"<b>","description":"one\ntwo","imageUrl":"https://x.example/i.png"},
			"title":"Ünïcode \u2028","tags":["a,b","c \"d\"","<e>"],"expiry":"2031-01-31T12:00:00.123Z","templateId":"t-1",
			"params":{"b":1.0,"a":"<&>\u2028","c":12345678901234567890,"d":{"e":[null,true]}},"isActive":false}`,
		`{"path":"/empty","tags":[],"params":{},"og":{"description":"only"}}`,
		`{"path":"/elsewhere","shortCode":"elsewhere","domainId":"` + other.ID + `"}`,
	} {
		link, err := catalog.ReadLink([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := w.Store.CreateLink(context.Background(), testenv.Actor, from.ID, store.Unconditional, link); err != nil {
			t.Fatal(err)
		}
	}
	// More than a page of an export and some batches of an import, of very few times.
	w.Exec(`insert into links (id, organization_id, domain_id, short_code, path, title)
		select gen_random_uuid(), $1, $2, 'many-' || i, '/many/' || i, 'Many ' || i from generate_series(1, 2100) i`, from.ID, own.ID)
	exported := w.export(from, transfer.NDJSON)
	expected := testenv.ComparableLinks(t, exported)
	for _, link := range expected {
		if link["host"] == other.Host {
			link["host"] = "go.example.com" // a domain that the others lack
		}
	}
	for _, format := range []string{transfer.NDJSON, transfer.CSV} {
		to := w.Organization(catalog.Scale)
		if _, _, _, err := w.Store.AddDomain(context.Background(), testenv.Actor, to.ID, store.Unconditional, own.Host, false); err != nil {
			t.Fatal(err)
		}
		file := w.export(from, format)
		for run, result := range []transfer.Result{{Rows: 2104, Created: 2104}, {Rows: 2104, Unchanged: 2104}} {
			result.Propagation = "complete"
			result.DefaultDomain = 1
			if format == transfer.CSV {
				result.DefaultDomain = 3 // the shared host is no organization's domain
				result.IgnoredColumns = []string{"id", "createdAt", "updatedAt"}
			}
			got, _ := w.imports(to, format, file)
			if diff := cmp.Diff(result, got); diff != "" {
				t.Errorf("%s, run %d (-expected +got):\n%s", format, run+1, diff)
			}
		}
		if diff := cmp.Diff(expected, testenv.ComparableLinks(t, w.export(to, transfer.NDJSON))); diff != "" {
			t.Errorf("%s (-exported +imported):\n%.4000s", format, diff)
		}
		if diff := cmp.Diff(w.StoredLinks(from), w.StoredLinks(to)); diff != "" {
			t.Errorf("%s (-rows exported from +rows imported to):\n%.4000s", format, diff)
		}
		var entries int
		if err := w.Pool.QueryRow(context.Background(), `select count(*) from audit_log a join links l on l.id = a.target_id
			where a.organization_id = $1 and a.actor_type = 'operator' and a.actor_id = $2 and a.action = 'link.create' and a.detail = jsonb_build_object('shortCode', l.short_code)`,
			to.ID, login()).Scan(&entries); err != nil || entries != 2104 {
			t.Errorf("%d entries in the audit trail (%v), expected one for each link", entries, err)
		}
		if usage, err := w.Store.LinkUsage(context.Background(), to.ID); err != nil || usage != 2104 {
			t.Errorf("%d links are counted (%v)", usage, err)
		}
	}
	if again := w.export(from, transfer.NDJSON); again != exported {
		t.Error("the exported organization has changed")
	}
}

func TestImportRejectsRowByRow(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	o := w.Organization(catalog.Free)
	w.Exec(`insert into links (id, organization_id, domain_id, short_code, path)
		select gen_random_uuid(), $1, d.id, 'there-' || i, '/there' from domains d, generate_series(1, 44) i where d.organization_id = $1`, o.ID)
	file := strings.Join([]string{
		`{"path":"/a","shortCode":"a","isActive":false}`,
		``,
		`{"path":"","shortCode":"a b","channel":"smoke"}`,
		`{"path":"/there","shortCode":"THERE-1"}`, // another case is another link
		`{"path":"/there","shortCode":"there-2"}`, // the same link
		`not JSON`,
		`{"path":"/b","path":"/c"}`,
		`{"path":"/n","title":"\u0000"}`,
		`{"path":"/a","shortCode":"A","isActive":true}`,
		`{"path":"/a","shortCode":"a","isActive":false}`,
		`{"path":"/no-code"}`,
		`{"path":"/no-code"}`,
		`{"path":"/foreign","domainId":"` + unknownID + `"}`,
		`{"path":"/long","title":"` + strings.Repeat("a", transfer.MaxLine) + `"}`,
		`{"path":"/b","unknown":1}`,
		`{"path":"/b","shortCode":"b","domain":{"host":"nobody.example"}}`,
		`{"path":"/c"}`, `{"path":"/d"}`, `{"path":"/e"}`, `{"path":"/f"}`,
	}, "\n")
	got, refused := w.imports(o, transfer.NDJSON, file)
	if diff := cmp.Diff(transfer.Result{Rows: 19, Created: 6, Unchanged: 3, Rejected: 10, DefaultDomain: 1, Propagation: "complete"}, got); diff != "" {
		t.Errorf("(-expected +got):\n%s", diff)
	}
	var lines []string
	for _, r := range refused {
		lines = append(lines, fmt.Sprintf("%d %s %s %d", r.Line, r.Code, r.ShortCode, len(r.Messages)))
	}
	code := refused[len(refused)-1].ShortCode
	expected := []string{
		"3 INVALID  3", "6 INVALID  1", "7 INVALID  1", "8 INVALID  1", "13 DOMAIN_NOT_FOUND " + refusedCode(refused, 13) + " 1", "14 INVALID  1", "15 INVALID  1",
		"4 SHORT_CODE_TAKEN THERE-1 1", "9 SHORT_CODE_TAKEN A 1", "20 QUOTA_EXCEEDED " + code + " 1",
	}
	if diff := cmp.Diff(expected, lines); diff != "" {
		t.Errorf("rejected (-expected +got):\n%s", diff)
	}
	if usage, err := w.Store.LinkUsage(context.Background(), o.ID); err != nil || usage != 50 {
		t.Errorf("%d links (%v), expected the quota of 50 used up", usage, err)
	}
	// With more room, the same file again makes what was left, and nothing twice.
	if _, err := w.Store.SetPlan(context.Background(), testenv.Actor, o.OrgKey, new(catalog.Starter)); err != nil {
		t.Fatal(err)
	}
	got, refused = w.imports(o, transfer.NDJSON, file, "--skip-existing")
	if diff := cmp.Diff(transfer.Result{Rows: 19, Created: 1, Unchanged: 9, Skipped: 2, Rejected: 7, DefaultDomain: 1, Propagation: "complete"}, got); diff != "" {
		t.Errorf("again (-expected +got):\n%s\n%v", diff, refused)
	}
}

func TestImportThatBrokeOffIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	o := w.Organization(catalog.Scale)
	var file strings.Builder
	file.WriteString("long_url\n")
	for i := range 700 {
		fmt.Fprintf(&file, "https://acme.example/%d\n", i)
	}
	path := filepath.Join(t.TempDir(), "links")
	// A quote that is never closed: the start of the next row is unknown.
	if err := os.WriteFile(path, []byte(file.String()+"\"https://acme.example/more\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := w.command("links", "import", "--org="+o.OrgKey, "--format=csv", path)
	if got := testenv.DecodeReply[transfer.Result](t, reply{Body: []byte(broken.stdout)}); broken.code != exitFailed || got.Created != 700 || !strings.Contains(broken.stderr, "line 702") {
		t.Errorf("%+v, expected 700 links and the place where it broke off", broken)
	}
	got, _ := w.imports(o, transfer.CSV, file.String()+"https://acme.example/more\n")
	if diff := cmp.Diff(transfer.Result{Rows: 701, Created: 1, Unchanged: 700, Propagation: "complete"}, got); diff != "" {
		t.Errorf("(-expected +got):\n%s", diff)
	}
}

func refusedCode(refused []transfer.RejectedRow, line int) string {
	for _, r := range refused {
		if r.Line == line {
			return r.ShortCode
		}
	}
	return ""
}

func TestConcurrentImportsKeepTheQuotaAndWaitForEdges(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	o := w.Organization(catalog.Free)
	// An edge that never applies anything.
	w.Exec(`insert into edges (slot, incarnation, lease_ms, hold_ms) values ('a', gen_random_uuid(), 100, 600000)`)
	var created, rejected [2]int
	var group sync.WaitGroup
	for n := range created {
		var file strings.Builder
		for i := range 40 {
			fmt.Fprintf(&file, `{"path":"/a","shortCode":"file-%d-%d"}`+"\n", n, i)
		}
		group.Go(func() {
			got, refused := w.imports(o, transfer.NDJSON, file.String())
			created[n], rejected[n] = got.Created, len(refused)
			if got.Propagation != "pending" && got.Created > 0 {
				t.Errorf("%+v though an edge has not heard of it", got)
			}
		})
	}
	group.Wait()
	if created[0]+created[1] != 50 || rejected[0]+rejected[1] != 30 {
		t.Errorf("%v created, %v rejected; expected 50 and 30", created, rejected)
	}
}

func TestImportThatCannotBeginSaysWhy(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	o, bare := w.Organization(catalog.Free), w.Organization(catalog.Free)
	w.Exec(`delete from app_configs where organization_id = $1`, bare.ID)
	file := filepath.Join(t.TempDir(), "links")
	if err := os.WriteFile(file, []byte(`{"path":"/a"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	table := filepath.Join(t.TempDir(), "table")
	if err := os.WriteFile(table, []byte("name,size\na,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		flags  []string
		code   int
		reason string
	}{
		{[]string{"--org=zzzz", file}, 1, "zzzz"},
		{[]string{"--org=" + o.OrgKey, "/nowhere"}, 2, "/nowhere"},
		{[]string{"--org=" + o.OrgKey, "--format=csv", table}, 2, "--help"},
		{[]string{"--org=" + o.OrgKey, "--format=xml", file}, 2, "--format"},
		{[]string{"--org=" + o.OrgKey, "--report=/nowhere/report", file}, 2, "/nowhere/report"},
		{[]string{"--org=" + bare.OrgKey, file}, 1, "app config"},
	} {
		if got := w.command(append([]string{"links", "import"}, test.flags...)...); got.code != test.code || !strings.Contains(got.stderr, test.reason) || got.stdout != "" {
			t.Errorf("%v: %+v, expected %d and %q", test.flags, got, test.code, test.reason)
		}
	}
	w.Exec(`update organizations set plan = null where id = $1`, o.ID)
	if got := w.command("links", "import", "--org="+o.OrgKey, file); got.code != 1 || !strings.Contains(got.stderr, "no plan") {
		t.Errorf("%+v, expected to hear of the plan", got)
	}
}
