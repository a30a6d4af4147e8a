package scenarios

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"deeplink/bench/result"
)

// loadWith runs the command with arguments and returns its results by scenario.
func loadWith(t *testing.T, arguments ...string) map[string]result.Round {
	t.Helper()
	var c Command
	parser, err := kong.New(&c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(append(arguments, "-c", "4", "--warmup", "0s", "-d", "300ms", "--timeout", "30s")); err != nil {
		t.Fatal(err)
	}
	l, err := c.prepare(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	file := new(result.File)
	if err := l.rounds(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	rounds := map[string]result.Round{}
	for _, s := range file.Series {
		rounds[s.Scenario] = s.Rounds[0]
	}
	return rounds
}

func TestLinksWithThePrefixAreRequested(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/demo/k0" && r.URL.Path != "/demo/k1" || r.Host != "go.example.com" || r.Header.Get("Accept") != "x" {
			http.Error(w, r.URL.Path, http.StatusTeapot)
		}
	}))
	t.Cleanup(server.Close)
	rounds := loadWith(t, "redirect", "zipf", "--base", server.URL, "--prefix", "/demo/k", "--count", "2", "--host", "go.example.com", "--header", "Accept: x")
	for scenario, round := range rounds {
		if round.Statuses[200] == 0 || len(round.Statuses) != 1 {
			t.Errorf("%s: %v", scenario, round.Statuses)
		}
	}
}

func TestMissingLinksOrServerKeyAreNamed(t *testing.T) {
	t.Parallel()
	for _, scenario := range []string{"redirect", "create", "mixed"} {
		c := Command{Scenarios: []string{scenario}, Base: []string{"http://127.0.0.1:1"}, API: "http://127.0.0.1:1"}
		if err := c.execute(t.Context(), new(bytes.Buffer), io.Discard); err == nil || !strings.Contains(err.Error(), "--server-key") {
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
