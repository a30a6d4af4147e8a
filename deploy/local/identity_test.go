package main

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// startIdentity serves a provider until the test ends.
func startIdentity(t *testing.T, control, keyFile string) *identity {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	provider, err := newIdentity("http://"+ln.Addr().String(), control, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- provider.serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return provider
}

func TestIdentityKeySurvivesRestartAndInterruptedWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "identity.pem")
	// An earlier process was killed while it wrote.
	if err := os.WriteFile(file+".new", []byte("-----BEGIN RSA"), 0o600); err != nil {
		t.Fatal(err)
	}
	created, err := readOrCreateKey(file)
	if err != nil {
		t.Fatal(err)
	}
	read, err := readOrCreateKey(file)
	if err != nil {
		t.Fatal(err)
	}
	if !created.Equal(read) {
		t.Error("the key changed after a restart")
	}
	kept, err := os.ReadDir(dir)
	if err != nil || len(kept) != 1 {
		t.Fatalf("the folder has %v, %v; expected only the key", kept, err)
	}
	if info, err := kept[0].Info(); err != nil || info.Mode() != 0o600 {
		t.Errorf("%s must be readable by its owner only: %v, %v", file, info.Mode(), err)
	}
}

// TestNoPageMayReadTokens sends requests as pages do: a browser lets no page read the response without these headers.
func TestNoPageMayReadTokens(t *testing.T) {
	t.Parallel()
	provider := startIdentity(t, "127.0.0.1:8081", filepath.Join(t.TempDir(), "identity.pem"))
	for _, origin := range []string{"http://127.0.0.1:8081", "http://evil.example", "null", ""} {
		for _, path := range []string{"/token", "/oauth/token"} {
			for _, method := range []string{http.MethodOptions, http.MethodPost} {
				request, err := http.NewRequest(method, provider.issuer+path, strings.NewReader(`{"org":"org_demo"}`))
				if err != nil {
					t.Fatal(err)
				}
				request.Header.Set("Origin", origin)
				response, err := http.DefaultClient.Do(request)
				if err != nil {
					t.Fatal(err)
				}
				response.Body.Close()
				if got := response.Header.Get("Access-Control-Allow-Origin"); got != "" {
					t.Errorf("%s %s from %q: allowed %q", method, path, origin, got)
				}
			}
		}
	}
}
