package scenarios

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"deeplink/bench/compare"
	"deeplink/bench/fleet"
	"deeplink/bench/result"
	"deeplink/bench/testfleet"
)

// loadWith runs the command with arguments and returns its results by scenario, and what it printed.
func loadWith(t *testing.T, arguments ...string) (map[string]result.Round, *result.File, string) {
	t.Helper()
	var c Command
	parser, err := kong.New(&c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(append(arguments, "-c", "4", "--warmup", "0s", "-d", "300ms", "--timeout", "30s")); err != nil {
		t.Fatal(err)
	}
	file, err := c.file()
	if err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	if err := c.measure(t.Context(), file, &printed); err != nil {
		t.Fatal(err)
	}
	rounds := map[string]result.Round{}
	for _, s := range file.Series {
		rounds[s.Scenario] = s.Rounds[0]
	}
	return rounds, file, printed.String()
}

// The statuses of each scenario, with real processes.
func TestEveryScenarioIsAnswered(t *testing.T) {
	f := testfleet.Start(t, 1, 2)
	o, err := fleet.NewOrganization(t.Context(), f.OperatorCommand)
	if err != nil {
		t.Fatal(err)
	}
	where := []string{"--base", "http://" + strings.Join(f.EdgeAddrs(), ",http://"), "--api", "http://" + f.Controls[0].Addr, "--server-key", o.ServerKey, "--clients", "10000"}
	rounds, file, printed := loadWith(t, append(where, "redirect", "zipf", "unknown", "pages", "data", "match", "create", "get", "list", "delete", "mixed",
		"--links", "10", "--tokens", "20", "--unknown", "0.5")...)
	t.Log(printed)
	for scenario, statuses := range map[string][]int{
		"redirect": {302}, "zipf": {302}, "unknown": {302, 404}, "pages": {200}, "data": {200}, "match": {200}, "create": {201}, "get": {200}, "list": {200},
		"delete: answered": {200}, "delete: gone": {404}, "mixed: clicks": {302}, "mixed: edits": {200},
	} {
		round := rounds[scenario]
		for _, status := range statuses {
			if round.Statuses[status] == 0 {
				t.Errorf("%s: no %d in %v", scenario, status, round.Statuses)
			}
		}
		for status := range round.Statuses {
			if !slices.Contains(append(statuses, http.StatusTooManyRequests, http.StatusServiceUnavailable), status) {
				t.Errorf("%s: %v", scenario, round.Statuses)
			}
		}
		if len(round.Failures) > 0 || !strings.Contains(printed, scenario) {
			t.Errorf("%s: failures %v, printed %q", scenario, round.Failures, printed)
		}
	}
	var left struct{ Total int }
	if _, err := newBackend("http://"+f.Controls[0].Addr, o.ServerKey, nil).call(t.Context(), "GET", "/links", nil, 200, &left); err != nil || left.Total != 0 {
		t.Errorf("%d links are left, %v", left.Total, err)
	}
	drawAndCompare(t, file)

	t.Run("a link served after its delete is seen", func(t *testing.T) {
		late := httptest.NewServer(http.RedirectHandler("https://example.com", http.StatusFound))
		t.Cleanup(late.Close)
		rounds, _, printed := loadWith(t, append(where, "delete", "--base", late.URL)...)
		if rounds["delete: gone"].Failures[failedStale] == 0 || !strings.Contains(printed, "must not happen") {
			t.Errorf("an edge that forgets nothing: %+v, printed %q", rounds["delete: gone"], printed)
		}
	})
}

// drawAndCompare does with results what the other commands do.
func drawAndCompare(t *testing.T, file *result.File) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.json")
	if err := file.Write(path); err != nil {
		t.Fatal(err)
	}
	for _, picture := range []string{"a.svg", "a.png"} {
		if err := (&compare.PlotCommand{File: path, Out: filepath.Join(t.TempDir(), picture)}).Run(t.Context()); err != nil {
			t.Errorf("%s: %v", picture, err)
		}
	}
	if err := (&compare.PlotCommand{File: path, Out: "a.gif"}).Run(t.Context()); err == nil {
		t.Error("a picture of a kind that there is not")
	}
	if err := compare.Results(new(bytes.Buffer), file, file); err != nil {
		t.Error(err)
	}
}

func TestKeysOfAFileAreClicked(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/demo/k0" && r.URL.Path != "/demo/k1" || r.Host != "go.example.com" || r.Header.Get("Accept") != "x" {
			http.Error(w, r.URL.Path, http.StatusTeapot)
		}
	}))
	t.Cleanup(server.Close)
	rounds, _, _ := loadWith(t, "redirect", "zipf", "--base", server.URL, "--prefix", "/demo/k", "--count", "2", "--host", "go.example.com", "--header", "Accept: x")
	for scenario, round := range rounds {
		if round.Statuses[200] == 0 || len(round.Statuses) != 1 {
			t.Errorf("%s: %v", scenario, round.Statuses)
		}
	}
}

func TestNothingToClickIsSaid(t *testing.T) {
	t.Parallel()
	for _, scenario := range []string{"redirect", "create", "mixed"} {
		c := Command{Scenarios: []string{scenario}, Base: []string{"http://127.0.0.1:1"}, API: "http://127.0.0.1:1"}
		if err := c.measure(t.Context(), new(result.File), new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), "--server-key") {
			t.Errorf("%s without a link or a key: %v", scenario, err)
		}
	}
}

func TestServerKeysAreNotInResults(t *testing.T) {
	t.Parallel()
	got := withoutKeys([]string{"load", "--server-key=svc_api_secret", "--server-key", "svc_api_secret"})
	if text := strings.Join(got, " "); strings.Contains(text, "secret") || !strings.Contains(text, "--server-key=...") {
		t.Error(text)
	}
}
