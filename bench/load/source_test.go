package load_test

import (
	"bufio"
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deeplink/bench/load"
)

func TestRequestsAreParsedAsIntended(t *testing.T) {
	t.Parallel()
	target, err := load.ParseTarget("https://go.example.com")
	if err != nil {
		t.Fatal(err)
	}
	body := func(int, *rand.Rand) func([]byte) []byte {
		return func(to []byte) []byte { return append(to, "{}"...) }
	}
	for name, request := range map[string]load.Request{
		"fixed":     {Method: "POST", Path: "/demo/0", Header: []string{"User-Agent: x"}, Body: "{}"},
		"paths":     {Method: "POST", Paths: load.Numbered("/demo/", 1, 1.1), Header: []string{"User-Agent: x"}, Body: "{}"},
		"bodies":    {Method: "POST", Path: "/demo/0", Header: []string{"User-Agent: x"}, Bodies: body, BodyLength: 2},
		"clients":   {Method: "POST", Path: "/demo/0", Header: []string{"User-Agent: x"}, Body: "{}", Clients: 1},
		"all of it": {Method: "POST", Paths: load.Numbered("/demo/", 1, 1.1), Header: []string{"User-Agent: x"}, Bodies: body, BodyLength: 2, Clients: 1},
	} {
		source := request.Source()(0, target)
		for range 2 {
			in := bufio.NewReader(bytes.NewReader(source.Next()))
			got, err := http.ReadRequest(in)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			text, _ := io.ReadAll(got.Body)
			if got.Method != "POST" || got.RequestURI != "/demo/0" || got.Host != "go.example.com" || got.UserAgent() != "x" || string(text) != "{}" || in.Buffered() > 0 {
				t.Errorf("%s: read as %+v with %q", name, got, text)
			}
			if forwarded := got.Header.Get("X-Forwarded-For"); (forwarded != "") != (request.Clients > 0) || request.Clients > 0 && forwarded != "10.0.0.0" {
				t.Errorf("%s: from %q", name, forwarded)
			}
		}
	}
}

func TestTargets(t *testing.T) {
	t.Parallel()
	for text, good := range map[string]bool{
		"http://127.0.0.1:8080": true, "https://go.example.com/": true, "http://[::1]:80": true,
		"go.example.com": false, "ftp://go.example.com": false, "http://go.example.com/demo": false, "http://": false, "http://u:p@go.example.com": false,
	} {
		if _, err := load.ParseTarget(text); (err == nil) != good {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestKeysAreReadAsPaths(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte("/demo/a\nhttps://go.example.com/demo/b?x=y\n\n  /demo/c\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := load.ReadKeys(file)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range keys.Len() {
		got = append(got, string(keys.At(i)))
	}
	if diff := cmp.Diff([]string{"/demo/a", "/demo/b?x=y", "/demo/c"}, got); diff != "" {
		t.Error(diff)
	}
	for _, text := range []string{"", "demo", "/a b"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := load.ReadKeys(file); err == nil {
			t.Errorf("%q was accepted as keys", text)
		}
	}
}

func TestPathsWithUnknownCodesAndSuffixes(t *testing.T) {
	t.Parallel()
	keys := load.NewKeys("/demo/a?x=y", "/demo/b")
	next := load.WithUnknown(keys.InTurn(), 0.5)(0, rand.New(rand.NewPCG(1, 2)))
	known, unknown := 0, map[string]bool{}
	for range 1000 {
		switch path := string(next([]byte("GET "))); {
		case path == "GET /demo/a?x=y" || path == "GET /demo/b":
			known++
		case strings.HasPrefix(path, "GET /demo/none-") && len(path) < 50:
			unknown[path] = true
		default:
			t.Fatal(path)
		}
	}
	if known < 400 || len(unknown) < 400 {
		t.Errorf("%d known and %d unknown of 1,000, a half each", known, len(unknown))
	}
	data := load.WithSuffix(keys.InTurn(), "/data")(0, rand.New(rand.NewPCG(1, 2)))
	got := []string{string(data(nil)), string(data(nil))}
	if slices.Sort(got); got[0] != "/demo/a/data" || got[1] != "/demo/b/data" {
		t.Errorf("with a suffix: %q", got)
	}
}

func TestSkewedPathsPreferTheFirst(t *testing.T) {
	t.Parallel()
	paths := load.Numbered("/d/", 1000, 1.2)(0, rand.New(rand.NewPCG(1, 2)))
	counts := map[string]int{}
	for range 10_000 {
		counts[string(paths(nil))]++
	}
	if counts["/d/0"] <= counts["/d/1"] || counts["/d/1"] <= counts["/d/9"] || len(counts) < 100 {
		t.Errorf("of 10,000 on 1,000 paths %d, %d and %d were the first, second and tenth, %d different", counts["/d/0"], counts["/d/1"], counts["/d/9"], len(counts))
	}
}
