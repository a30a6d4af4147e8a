package api

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
	"deeplink/shared/requestid"
)

// corsRequest sends a request from a page of an origin, as a browser does; origins are the Origin header lines.
func corsRequest(t *testing.T, method, url, key, body string, origins ...string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header["Origin"] = origins
	if method == http.MethodOptions {
		request.Header.Set("Access-Control-Request-Method", http.MethodPost)
		request.Header.Set("Access-Control-Request-Headers", "authorization,content-type")
	} else {
		request.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return response
}

// corsHeaders returns the names of the Access-Control headers of a response.
func corsHeaders(response *http.Response) (names []string) {
	for name := range response.Header {
		if strings.HasPrefix(name, "Access-Control-") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

const shopOrigin, devOrigin = "https://shop.example.com", "http://localhost:3000"

var sdkPaths = []string{"/sdk/session", "/sdk/identity", "/sdk/identity/clear", "/sdk/events"}

// checkShared checks the headers that a browser needs to give the response to a page of the origin.
func checkShared(t *testing.T, what string, response *http.Response, origin string) {
	t.Helper()
	header := response.Header
	if got := header.Values("Access-Control-Allow-Origin"); !slices.Equal(got, []string{origin}) {
		t.Errorf("%s: Access-Control-Allow-Origin %q, expected %q", what, got, origin)
	}
	if got := header.Values("Vary"); !slices.Contains(strings.Split(strings.Join(got, ", "), ", "), "Origin") {
		t.Errorf("%s: Vary %q, expected Origin", what, got)
	}
	if header.Get("Access-Control-Allow-Credentials") != "" {
		t.Errorf("%s: allows credentials", what)
	}
	if header.Get(requestid.Header) == "" {
		t.Errorf("%s: no %s", what, requestid.Header)
	}
}

func TestListedOriginMayCallTheSDKFromABrowser(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.serve(withSDKOrigins(shopOrigin, devOrigin))
	organization := w.Organization(catalog.Scale)
	client, server := w.APIKey(organization.ID, apikey.Client), w.APIKey(organization.ID, apikey.Server)

	t.Run("preflights need no key and do not count against the limit", func(t *testing.T) {
		for _, path := range sdkPaths {
			for _, origin := range []string{shopOrigin, devOrigin} {
				response := corsRequest(t, http.MethodOptions, p.Base+path, "", "", origin)
				body, err := io.ReadAll(response.Body)
				if err != nil || response.StatusCode != http.StatusNoContent || len(body) != 0 {
					t.Errorf("OPTIONS %s: %d %q, %v, expected 204 without a body", path, response.StatusCode, body, err)
				}
				checkShared(t, "OPTIONS "+path, response, origin)
				for name, want := range map[string]string{
					"Access-Control-Allow-Methods": "POST", "Access-Control-Allow-Headers": "Authorization, Content-Type, X-Request-Id", "Access-Control-Max-Age": "7200",
				} {
					if got := response.Header.Get(name); got != want {
						t.Errorf("OPTIONS %s: %s %q, expected %q", path, name, got, want)
					}
				}
			}
		}
		// One more than the limit of sessions and identities, with the key of the organization.
		for range 60 {
			corsRequest(t, http.MethodOptions, p.Base+"/sdk/session", client, "", shopOrigin)
		}
		for i := range 61 {
			response := corsRequest(t, http.MethodPost, p.Base+"/sdk/identity/clear", client, `{"deviceId":"a"}`, shopOrigin)
			want := http.StatusOK
			if i == 60 {
				want = http.StatusTooManyRequests
			}
			if response.StatusCode != want {
				t.Fatalf("request %d: %d, expected %d", i+1, response.StatusCode, want)
			}
			checkShared(t, "POST /sdk/identity/clear", response, shopOrigin)
		}
	})

	t.Run("success and every error are shared", func(t *testing.T) {
		for _, c := range []struct {
			method, path, key, body string
			status                  int
		}{
			{"POST", "/sdk/events", client, `{"deviceId":"a","events":[{"name":"opened"}]}`, 200},
			{"POST", "/sdk/events", "", `{}`, 401},
			{"POST", "/sdk/events", server, `{}`, 403},
			{"POST", "/sdk/events", client, `{}`, 400},
			{"POST", "/sdk/events", client, `{"deviceId":"` + strings.Repeat("a", 64<<10) + `"}`, 413},
			{"POST", "/sdk/none", client, `{}`, 404},
			{"GET", "/sdk/events", client, ``, 405},
			{"OPTIONS", "/sdk/none", "", ``, 404},
		} {
			response := corsRequest(t, c.method, p.Base+c.path, c.key, c.body, shopOrigin)
			what := c.method + " " + c.path
			if response.StatusCode != c.status {
				t.Errorf("%s: %d, expected %d", what, response.StatusCode, c.status)
			}
			checkShared(t, what, response, shopOrigin)
			if got := response.Header.Get("Access-Control-Expose-Headers"); c.method != "OPTIONS" && got != requestid.Header {
				t.Errorf("%s: exposes %q, expected %s", what, got, requestid.Header)
			}
		}
	})

	t.Run("another origin gets no CORS headers", func(t *testing.T) {
		for _, origins := range [][]string{
			{"https://evil.example.com"}, {"null"}, {"*"}, {""}, {"http://shop.example.com"}, {"https://shop.example.com:8443"}, {"https://shop.example.com."},
			{"https://shop.example.com.evil.example"}, {"https://evil.example/https://shop.example.com"}, {"https://SHOP.example.com"}, {"http://localhost"},
			{shopOrigin, "https://evil.example.com"}, {shopOrigin, shopOrigin},
		} {
			for _, c := range []struct {
				method string
				status int
			}{{http.MethodOptions, http.StatusMethodNotAllowed}, {http.MethodPost, http.StatusOK}} {
				response := corsRequest(t, c.method, p.Base+"/sdk/events", client, `{"deviceId":"a","events":[{"name":"opened"}]}`, origins...)
				if names := corsHeaders(response); response.StatusCode != c.status || names != nil {
					t.Errorf("%s from %q: %d with %q, expected %d without any", c.method, origins, response.StatusCode, names, c.status)
				}
				if got := response.Header.Get("Vary"); got != "Origin" {
					t.Errorf("%s from %q: Vary %q, expected Origin", c.method, origins, got)
				}
			}
		}
	})

	t.Run("a plain OPTIONS request is not a preflight", func(t *testing.T) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, p.Base+"/sdk/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Origin", shopOrigin)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusMethodNotAllowed || response.Header.Get("Allow") != "POST" {
			t.Errorf("%d, Allow %q, expected 405 and POST", response.StatusCode, response.Header.Get("Allow"))
		}
	})

	t.Run("no other route is shared", func(t *testing.T) {
		for _, path := range []string{"/links", "/portal/organization", "/healthz", "/openapi.json", "/console", "/sdk", "/sdkx/events"} {
			for _, method := range []string{http.MethodGet, http.MethodOptions} {
				response := corsRequest(t, method, p.Base+path, server, "", shopOrigin)
				if names := corsHeaders(response); names != nil || method == http.MethodOptions && response.StatusCode < 400 {
					t.Errorf("%s %s: %d with %q, expected none", method, path, response.StatusCode, names)
				}
			}
		}
	})
}

func TestSDKIsNotSharedWithoutOrigins(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	p := w.serve()
	client := w.APIKey(w.Organization(catalog.Scale).ID, apikey.Client)
	for method, status := range map[string]int{http.MethodOptions: http.StatusMethodNotAllowed, http.MethodPost: http.StatusOK} {
		response := corsRequest(t, method, p.Base+"/sdk/events", client, `{"deviceId":"a","events":[{"name":"opened"}]}`, shopOrigin)
		if names := corsHeaders(response); response.StatusCode != status || names != nil || response.Header.Get("Vary") != "" {
			t.Errorf("%s: %d with %q and Vary %q, expected %d without any", method, response.StatusCode, names, response.Header.Get("Vary"), status)
		}
	}
}
