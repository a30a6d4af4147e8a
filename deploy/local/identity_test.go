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

// TestOnlyConsoleOriginMayReadTokens sends requests as pages do.
func TestOnlyConsoleOriginMayReadTokens(t *testing.T) {
	t.Parallel()
	provider := startIdentity(t, "127.0.0.1:8081", filepath.Join(t.TempDir(), "identity.pem"))
	for origin, allowed := range map[string]string{
		"http://127.0.0.1:8081": "http://127.0.0.1:8081", "http://localhost:8081": "http://localhost:8081",
		"http://127.0.0.1:8080": "", "https://localhost:8081": "", "http://evil.example": "", "null": "", "": "",
	} {
		for method, status := range map[string]int{http.MethodOptions: http.StatusNoContent, http.MethodPost: http.StatusOK} {
			request, err := http.NewRequest(method, provider.issuer+"/token", strings.NewReader(`{"org":"org_demo"}`))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Origin", origin)
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			got := response.Header.Get("Access-Control-Allow-Origin")
			if response.StatusCode != status || got != allowed || response.Header.Get("Vary") != "Origin" {
				t.Errorf("%s from %q: %d, allowed %q, expected %d, %q", method, origin, response.StatusCode, got, status, allowed)
			}
			if method == http.MethodOptions && response.Header.Get("Access-Control-Allow-Headers") != "Content-Type" {
				t.Errorf("a preflight from %q: %v", origin, response.Header)
			}
		}
	}
}
