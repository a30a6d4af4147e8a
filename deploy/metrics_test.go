package deploy

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"deeplink/deploy/stack"
	"deeplink/shared/devservers"
)

var update = flag.Bool("update", false, "write metrics.md as the programs have it")

// TestMetrics scrapes a control and an edge after some traffic, and compares metrics.md, alerts and dashboard with the result. An alert on
// a missing metric would never fire.
func TestMetrics(t *testing.T) {
	t.Parallel()
	control, edge := scrapeAfterTraffic(t)
	t.Run("follow the conventions", func(t *testing.T) { control.lint(t); edge.lint(t) })
	t.Run("are those of metrics.md", func(t *testing.T) { checkList(t, control, edge) })
	both := scrape{text: control.text + edge.text, families: maps.Clone(control.families), series: slices.Concat(control.series, edge.series)}
	maps.Copy(both.families, edge.families)
	for alert, expression := range alerts(t) {
		t.Run(alert, func(t *testing.T) { both.checkExpression(t, expression) })
	}
	for panel, expressions := range panels(t) {
		t.Run(panel, func(t *testing.T) {
			for _, expression := range expressions {
				both.checkExpression(t, expression)
			}
		})
	}
}

// scrapeAfterTraffic returns the metrics of a control and an edge after every event without which a series would be missing.
func scrapeAfterTraffic(t *testing.T) (control, edge scrape) {
	t.Helper()
	dir, err := os.MkdirTemp("", "deeplink-metrics-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // as root, PostgreSQL runs as another user
		t.Fatal(err)
	}
	if err := stack.Build(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	keys := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(keys.Close)
	at := [2]string{}
	for i := range at {
		if at[i], err = devservers.FreeAddr(); err != nil {
			t.Fatal(err)
		}
	}
	s, err := stack.Open(t.Context(), stack.Options{Dir: dir, Bin: dir, LinkBase: "http://" + at[1], Output: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	e, err := s.StartEdge(t.Context(), at[1])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Kill() })
	c, err := s.StartControl(t.Context(), at[0], "CONTROL_CANARY=1s", "PORTAL_JWKS_URL="+keys.URL, "PORTAL_ISSUER="+keys.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Kill() })
	visit(t, s, c.URL(), e.URL())
	control = readScrape(t, ask(t, "GET", "http://"+c.Admin+"/metrics", "", ""))
	edge = readScrape(t, ask(t, "GET", "http://"+e.Admin+"/metrics", "", ""))
	return control, edge
}

// visit creates a link and requests it in every way.
func visit(t *testing.T, s *stack.Stack, control, edge string) {
	t.Helper()
	out, err := s.Operate(t.Context(), s.Control, "org", "create", "--name=Acme", "--org-key=acme", "--plan=scale", "--app-config=demo")
	if err != nil {
		t.Fatal(err)
	}
	var acme struct{ ServerKey, ClientKey string }
	if err := json.Unmarshal(out, &acme); err != nil {
		t.Fatal(err)
	}
	ask(t, "POST", control+"/links", acme.ServerKey, `{"path":"/sale","shortCode":"sale","fallbackUrl":"https://example.com/"}`)
	ask(t, "POST", control+"/sdk/events", acme.ClientKey, `{"deviceId":"a","events":[{"name":"opened"}]}`)
	ask(t, "GET", control+"/links", "", "")
	for _, path := range []string{"/acme/sale", "/acme/sale", "/acme/sale/data", "/acme/none", "/.well-known/assetlinks.json"} {
		ask(t, "GET", edge+path, "", "")
	}
	ask(t, "POST", edge+"/match", "", `{"clipboardToken":"not a token"}`)
}

// ask sends a request and returns the body of the response, whatever its status.
func ask(t *testing.T, method, url, key, body string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	client := http.Client{Timeout: 30 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// checkList requires that metrics.md matches the programs.
func checkList(t *testing.T, control, edge scrape) {
	var own [3]map[string]string // of both, of the edge, of control
	for i := range own {
		own[i] = map[string]string{}
	}
	for name := range control.families {
		if _, ok := edge.families[name]; ok {
			own[0][name] = control.row(name)
		} else {
			own[2][name] = control.row(name)
		}
	}
	for name := range edge.families {
		if _, ok := control.families[name]; !ok {
			own[1][name] = edge.row(name)
		}
	}
	var list strings.Builder
	list.WriteString("# What the programs measure\n\nAt `/metrics` of the admin addresses; `go_*` and `process_*` are those of every Go program. " +
		"Written by `go test ./deploy -run TestMetrics -update`;\nwhere they are made: [edge/metrics.go](../edge/metrics.go), [control/internal/api/metrics.go](../control/internal/api/metrics.go).\n")
	for i, title := range []string{"Both", "Edge", "Control"} {
		fmt.Fprintf(&list, "\n## %s\n\n| metric | kind | labels | what |\n|---|---|---|---|\n", title)
		for _, name := range slices.Sorted(maps.Keys(own[i])) {
			list.WriteString(own[i][name])
		}
	}
	if *update {
		if err := os.WriteFile("metrics.md", []byte(list.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(list.String(), read(t, "metrics.md")); diff != "" {
		t.Errorf("metrics.md is not what the programs have (-programs +metrics.md):\n%s", diff)
	}
}

var alertRule = regexp.MustCompile(`(?m)^ +- alert: (\w+)\n +expr: (?:\|\n((?:          .*\n)+)|(.*)\n)`)

// alerts returns the expressions of the rules by the names of the alerts.
func alerts(t *testing.T) map[string]string {
	t.Helper()
	text := read(t, "prometheus/rules.yml")
	all := map[string]string{}
	for _, rule := range alertRule.FindAllStringSubmatch(text, -1) {
		all[rule[1]] = rule[2] + rule[3]
	}
	if n := strings.Count(text, "- alert:"); len(all) != n || n == 0 {
		t.Fatalf("%d of %d alerts were parsed: the test parses them incorrectly", len(all), n)
	}
	return all
}

// panels returns the expressions of the dashboard by the titles of its panels.
func panels(t *testing.T) map[string][]string {
	t.Helper()
	type panel struct {
		Title   string
		Type    string
		Targets []struct{ Expr string }
	}
	var dashboard struct{ Panels []panel }
	if err := json.Unmarshal([]byte(read(t, "grafana/deeplink.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for i, p := range dashboard.Panels {
		if p.Type == "row" {
			continue
		}
		for _, target := range p.Targets {
			all[strconv.Itoa(i)+" "+p.Title] = append(all[strconv.Itoa(i)+" "+p.Title], target.Expr)
		}
	}
	if len(all) == 0 {
		t.Fatal("no panels found: the test parses them incorrectly")
	}
	return all
}

// TestEveryAlertHasItsEntryAndItsTest also fails for an entry or a test without an alert.
func TestEveryAlertHasItsEntryAndItsTest(t *testing.T) {
	t.Parallel()
	rules, runbook := read(t, "prometheus/rules.yml"), read(t, "runbook.md")
	named := slices.Sorted(maps.Keys(alerts(t)))
	var entries []string
	for _, entry := range regexp.MustCompile(`(?m)^### (\w+)$`).FindAllStringSubmatch(runbook, -1) {
		entries = append(entries, entry[1])
	}
	slices.Sort(entries)
	if diff := cmp.Diff(named, entries); diff != "" {
		t.Errorf("entries of runbook.md (-alerts +entries):\n%s", diff)
	}
	var tested []string
	for _, file := range glob(t, "prometheus/tests/*.yml") {
		name := strings.TrimSuffix(filepath.Base(file), ".yml")
		tested = append(tested, name)
		text := read(t, file)
		fires := strings.Contains(text, "value: 1}]")
		if !strings.Contains(text, `alertname="`+name+`"`) || !fires || !strings.Contains(text, "exp_samples: []") {
			t.Errorf("%s: there must be a case in which %s fires, and one in which it does not", file, name)
		}
	}
	slices.Sort(tested)
	if diff := cmp.Diff(named, tested); diff != "" {
		t.Errorf("files in prometheus/tests (-alerts +files):\n%s", diff)
	}
	// prometheus/tests/DeeplinkDown.yml shows that Prometheus expands it to an absolute URL.
	for _, name := range named {
		if !strings.Contains(rules, `runbook_url: '{{ or $externalLabels.runbook "deploy/runbook.md" }}#`+strings.ToLower(name)+"'\n") {
			t.Errorf("%s does not link to its entry", name)
		}
	}
	for _, part := range []string{"**Means:**", "**Noticed:**", "**Look at:**", "**Do:**"} {
		if n := strings.Count(runbook, part); n != len(named) {
			t.Errorf("runbook.md has %s %d times, expected once for each of %d alerts", part, n, len(named))
		}
	}
}
