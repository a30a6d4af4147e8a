package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
)

// command runs a command of control in this process.
func (w *world) command(arguments ...string) outcome {
	w.t.Helper()
	var stdout, stderr lockedBuffer
	arguments = append(arguments, "--database-url="+w.db.ControlURL)
	if !strings.Contains(strings.Join(arguments, " "), "--link-base-url") {
		arguments = append(arguments, "--link-base-url="+testLinkBase)
	}
	if given := strings.Join(arguments, " "); !strings.HasPrefix(given, "links export") && !strings.Contains(given, "--redis-url") {
		arguments = append(arguments, "--redis-url="+w.redis.URL())
	}
	code := run(context.Background(), arguments, &stdout, &stderr)
	return outcome{code, stdout.String(), stderr.String()}
}

func (w *world) export(o store.CreatedOrganization, format string) string {
	w.t.Helper()
	got := w.command("links", "export", "--org="+o.OrgKey, "--format="+format)
	if got.code != 0 {
		w.t.Fatalf("export: %+v", got)
	}
	return got.stdout
}

// imports imports a file and returns the result without its times, and the rejected rows.
func (w *world) imports(o store.CreatedOrganization, format, file string, flags ...string) (imported, []refusal) {
	w.t.Helper()
	folder := w.t.TempDir()
	path, report := filepath.Join(folder, "links"), filepath.Join(folder, "report")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		w.t.Fatal(err)
	}
	got := w.command(append([]string{"links", "import", "--org=" + o.OrgKey, "--format=" + format, "--report=" + report, path}, flags...)...)
	result := into[imported](w.t, reply{body: []byte(got.stdout)})
	text, err := os.ReadFile(report)
	if err != nil {
		w.t.Fatal(err)
	}
	var refused []refusal
	for line := range bytes.Lines(text) {
		refused = append(refused, into[refusal](w.t, reply{body: line}))
	}
	if len(refused) != result.Rejected || (got.code != 0) != (result.Rejected > 0) {
		w.t.Errorf("%+v with %d rejected rows in the report", got, len(refused))
	}
	result.Seconds, result.PerSecond = 0, 0
	return result, refused
}

// stored returns the organization's links as they are in the database, which exports may show otherwise.
func (w *world) stored(o store.CreatedOrganization) (rows string) {
	w.t.Helper()
	if err := w.pool.QueryRow(context.Background(), `
		select string_agg(concat_ws('|', short_code, path, fallback_url, title, tags, expiry, og_title, og_description, params), E'\n' order by short_code)
		from links where organization_id = $1`, o.ID).Scan(&rows); err != nil {
		w.t.Fatal(err)
	}
	return rows
}

// comparable returns exported links without what cannot be the same in another organization.
func comparable(t *testing.T, ndjson string) []map[string]any {
	t.Helper()
	var links []map[string]any
	for line := range strings.Lines(ndjson) {
		var link map[string]any
		if err := json.Unmarshal([]byte(line), &link); err != nil {
			t.Fatal(err)
		}
		link["host"] = link["domain"].(map[string]any)["host"]
		link["params"] = paramsOf(t, line)
		for _, own := range []string{"id", "organizationId", "domainId", "domain", "url", "createdAt", "updatedAt"} {
			delete(link, own)
		}
		links = append(links, link)
	}
	return links
}

// paramsOf returns the params to the letter.
func paramsOf(t *testing.T, line string) string {
	t.Helper()
	var link struct{ Params json.RawMessage }
	if err := json.Unmarshal([]byte(line), &link); err != nil {
		t.Fatal(err)
	}
	return string(link.Params)
}

func TestLinksExportedAndImportedElsewhereAreEqual(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	from := w.organization(catalog.Scale)
	own, _, _, err := w.store.AddDomain(context.Background(), from.ID, "go.acme.example", true)
	if err != nil {
		t.Fatal(err)
	}
	other, _, _, err := w.store.AddDomain(context.Background(), from.ID, "other.acme.example", true)
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
		if _, _, err := w.store.CreateLink(context.Background(), from.Organization, link); err != nil {
			t.Fatal(err)
		}
	}
	// More than a page of an export and some batches of an import, of very few times.
	w.exec(`insert into links (id, organization_id, domain_id, short_code, path, title)
		select gen_random_uuid(), $1, $2, 'many-' || i, '/many/' || i, 'Many ' || i from generate_series(1, 2100) i`, from.ID, own.ID)
	exported := w.export(from, formatNDJSON)
	expected := comparable(t, exported)
	for _, link := range expected {
		if link["host"] == other.Host {
			link["host"] = "go.example.com" // a domain that the others lack
		}
	}
	for _, format := range []string{formatNDJSON, formatCSV} {
		to := w.organization(catalog.Scale)
		if _, _, _, err := w.store.AddDomain(context.Background(), to.ID, own.Host, false); err == nil {
			t.Fatal("a verified host was added again")
		}
		w.exec(`insert into domains (id, organization_id, host, status) values (gen_random_uuid(), $1, $2, 'pending')`, to.ID, own.Host)
		file := w.export(from, format)
		for run, result := range []imported{{Rows: 2104, Created: 2104}, {Rows: 2104, Unchanged: 2104}} {
			result.Propagation = "complete"
			result.DefaultDomain = 1
			if format == formatCSV {
				result.DefaultDomain = 3 // the shared host is nobody's domain
				result.IgnoredColumns = []string{"id", "createdAt", "updatedAt"}
			}
			got, _ := w.imports(to, format, file)
			if diff := cmp.Diff(result, got); diff != "" {
				t.Errorf("%s, run %d (-expected +got):\n%s", format, run+1, diff)
			}
		}
		if diff := cmp.Diff(expected, comparable(t, w.export(to, formatNDJSON))); diff != "" {
			t.Errorf("%s (-exported +imported):\n%.4000s", format, diff)
		}
		if diff := cmp.Diff(w.stored(from), w.stored(to)); diff != "" {
			t.Errorf("%s (-rows exported from +rows imported to):\n%.4000s", format, diff)
		}
		var entries int
		if err := w.pool.QueryRow(context.Background(), `select count(*) from audit_log a join links l on l.id = a.target_id
			where a.organization_id = $1 and a.actor_type = 'operator' and a.actor_id = $2 and a.action = 'link.create' and a.detail = jsonb_build_object('shortCode', l.short_code)`,
			to.ID, login()).Scan(&entries); err != nil || entries != 2104 {
			t.Errorf("%d entries in the audit trail (%v), expected one for each link", entries, err)
		}
		if usage, err := w.store.LinkUsage(context.Background(), to.ID); err != nil || usage != 2104 {
			t.Errorf("%d links are counted (%v)", usage, err)
		}
	}
	if again := w.export(from, formatNDJSON); again != exported {
		t.Error("the exported organization has changed")
	}
}

func TestImportRejectsRowByRow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.organization(catalog.Free)
	w.exec(`insert into links (id, organization_id, domain_id, short_code, path)
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
		`{"path":"/foreign","domainId":"` + nowhere + `"}`,
		`{"path":"/long","title":"` + repeat("a", maxImportLine) + `"}`,
		`{"path":"/b","unknown":1}`,
		`{"path":"/b","shortCode":"b","domain":{"host":"nobody.example"}}`,
		`{"path":"/c"}`, `{"path":"/d"}`, `{"path":"/e"}`, `{"path":"/f"}`,
	}, "\n")
	got, refused := w.imports(o, formatNDJSON, file)
	if diff := cmp.Diff(imported{Rows: 19, Created: 6, Unchanged: 3, Rejected: 10, DefaultDomain: 1, Propagation: "complete"}, got); diff != "" {
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
	if usage, err := w.store.LinkUsage(context.Background(), o.ID); err != nil || usage != 50 {
		t.Errorf("%d links (%v), expected the quota of 50 used up", usage, err)
	}
	// With more room, the same file again makes what was left, and nothing twice.
	if _, err := w.store.SetPlan(context.Background(), o.OrgKey, new(catalog.Starter)); err != nil {
		t.Fatal(err)
	}
	got, refused = w.imports(o, formatNDJSON, file, "--skip-existing")
	if diff := cmp.Diff(imported{Rows: 19, Created: 1, Unchanged: 9, Skipped: 2, Rejected: 7, DefaultDomain: 1, Propagation: "complete"}, got); diff != "" {
		t.Errorf("again (-expected +got):\n%s\n%v", diff, refused)
	}
}

func TestImportThatBrokeOffIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.organization(catalog.Scale)
	var file strings.Builder
	file.WriteString("long_url\n")
	for i := range 700 {
		fmt.Fprintf(&file, "https://acme.example/%d\n", i)
	}
	path := filepath.Join(t.TempDir(), "links")
	// A quote that is never closed: nobody can tell where the next row begins.
	if err := os.WriteFile(path, []byte(file.String()+"\"https://acme.example/more\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := w.command("links", "import", "--org="+o.OrgKey, "--format=csv", path)
	if got := into[imported](t, reply{body: []byte(broken.stdout)}); broken.code != exitFailed || got.Created != 700 || !strings.Contains(broken.stderr, "line 702") {
		t.Errorf("%+v, expected 700 links and the place where it broke off", broken)
	}
	got, _ := w.imports(o, formatCSV, file.String()+"https://acme.example/more\n")
	if diff := cmp.Diff(imported{Rows: 701, Created: 1, Unchanged: 700, Propagation: "complete"}, got); diff != "" {
		t.Errorf("(-expected +got):\n%s", diff)
	}
}

func refusedCode(refused []refusal, line int) string {
	for _, r := range refused {
		if r.Line == line {
			return r.ShortCode
		}
	}
	return ""
}

func TestImportReadsTheFilesOfOtherServices(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		file     string
		expected []string // shortCode, path, fallbackUrl, title, tags, og, utm and channel, isActive
		ignored  []string
	}{
		"Bitly": {
			"\ufeffLink,Custom Link,Destination URL,Title,Created Date,Tags,Clicks\r\n" +
				"https://bit.ly/3xYz,https://acme.co/Sale,https://shop.example/sale?utm_source=x,\"Sale, now\",2024-05-01,\"spring, sale\",12\r\n" +
				"bit.ly/4Abc,,https://shop.example,,2024-05-02,,0\r\n",
			[]string{
				`Sale /sale?utm_source=x https://shop.example/sale?utm_source=x Sale, now [spring sale] true`,
				`4Abc / https://shop.example  [] true`,
			},
			[]string{"Created Date", "Clicks"},
		},
		"the API of Bitly": {
			"created_at,id,link,custom_bitlinks,long_url,title,archived,tags\n" +
				"2024-05-01T00:00:00+0000,bit.ly/3xYz,https://bit.ly/3xYz,\"[\"\"http://acme.co/one\"\",\"\"http://acme.co/two\"\"]\",https://shop.example/a%20b,T,false,\"[\"\"x,y\"\"]\"\n",
			[]string{`one /a%20b https://shop.example/a%20b T [x,y] true`},
			[]string{"created_at", "id", "archived"},
		},
		"Dub": {
			"Short link,Destination URL,Clicks,Created at,Tags,Archived\n" +
				"https://dub.sh/launch,https://acme.example/launch,7,2024-05-01T00:00:00.000Z,\"a, b\",false\n",
			[]string{`launch /launch https://acme.example/launch  [a b] true`},
			[]string{"Clicks", "Created at", "Archived"},
		},
		"the API of Dub": {
			"domain,key,url,title,description,image,expiresAt,utm_source,utm_medium\n" +
				"dub.sh,try,https://acme.example/try,T,D,https://acme.example/i.png,2031-01-01T00:00:00.000Z,src,med\n",
			[]string{`try /try https://acme.example/try T [] true og T= D=D expiry 2031-01-01T00:00:00.000Z utm src/med/ channel `},
			nil,
		},
		"Branch": {
			"url,alias,$marketing_title,~channel,~feature,~campaign,~tags,$canonical_url,$desktop_url,$ios_url,$deeplink_path,$og_title,product_id\n" +
				"https://acme.app.link/xYz12,,First,Facebook,ads,Spring,\"a,b\",https://acme.example/c,https://acme.example/d,https://apps.apple.com/x,product/42,Shown,42\n" +
				"https://acme.app.link/named,named,Second,Some Newsletter,,,,https://acme.example/c?x=1,,,,,\n",
			[]string{
				`xYz12 product/42 https://acme.example/d First [a b] true og T=Shown D= utm Facebook/ads/Spring channel facebook`,
				`named /c?x=1 https://acme.example/c?x=1 Second [] true utm Some Newsletter// channel `,
			},
			[]string{"product_id"},
		},
		"rows that are no links": {
			"long_url,title,tags\n" +
				"https://acme.example/1,\"two\nlines\",\n" + "ftp://acme.example/2,,\n" + "https://acme.example/3,\xff,\n" + "https://acme.example/4\n" + "https://acme.example/5,a\"b,\n",
			[]string{`/4 https://acme.example/4  [] true`},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			rows, err := openRows(strings.NewReader(test.file), formatCSV)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for {
				row, err := rows.next()
				if err != nil {
					break
				}
				if link, err := row.judge(nowhere); err == nil {
					got = append(got, summary(link))
				} else {
					t.Logf("line %d: %v", row.line, err)
				}
			}
			if diff := cmp.Diff(test.expected, got); diff != "" {
				t.Errorf("(-expected +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.ignored, rows.ignored()); diff != "" {
				t.Errorf("ignored (-expected +got):\n%s", diff)
			}
		})
	}
}

// summary names what is set in a link. A code that was made for it is not.
func summary(l catalog.Link) string {
	s := fmt.Sprintf("%s %s %s %v %t", l.Path, orEmpty(l.FallbackURL), orEmpty(l.Title), l.Tags, l.IsActive)
	if len(l.ShortCode) != derivedLength {
		s = l.ShortCode + " " + s
	}
	if l.OG != nil {
		s += fmt.Sprintf(" og T=%s D=%s", orEmpty(l.OG.Title), orEmpty(l.OG.Description))
	}
	if l.Expiry != nil {
		s += " expiry " + l.Expiry.Format(catalog.TimeFormat)
	}
	if l.UTMSource != nil || l.Channel != nil {
		s += fmt.Sprintf(" utm %s/%s/%s channel %s", orEmpty(l.UTMSource), orEmpty(l.UTMMedium), orEmpty(l.UTMCampaign), orEmpty(l.Channel))
	}
	return s
}

func TestConcurrentImportsKeepTheQuotaAndWaitForEdges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.organization(catalog.Free)
	// An edge that never applies anything.
	w.exec(`insert into edges (slot, incarnation, lease_ms, hold_ms) values ('a', gen_random_uuid(), 100, 600000)`)
	var created, rejected [2]int
	var group sync.WaitGroup
	for n := range created {
		var file strings.Builder
		for i := range 40 {
			fmt.Fprintf(&file, `{"path":"/a","shortCode":"file-%d-%d"}`+"\n", n, i)
		}
		group.Go(func() {
			got, refused := w.imports(o, formatNDJSON, file.String())
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
	w := newWorld(t)
	o, bare := w.organization(catalog.Free), w.organization(catalog.Free)
	w.exec(`delete from app_configs where organization_id = $1`, bare.ID)
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
	w.exec(`update organizations set plan = null where id = $1`, o.ID)
	if got := w.command("links", "import", "--org="+o.OrgKey, file); got.code != 1 || !strings.Contains(got.stderr, "no plan") {
		t.Errorf("%+v, expected to hear of the plan", got)
	}
}
