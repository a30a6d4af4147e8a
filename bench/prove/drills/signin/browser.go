package signin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/visitor"
	"deeplink/deploy/stack"
)

const (
	// consoleURL is the origin of the browser. Nothing listens there: requests go to one of the controls, as through a balancer.
	consoleURL    = "http://127.0.0.1:1"
	sessionCookie = "deeplink_console"
	browserCookie = "deeplink_signin"
)

// settings are those of a control whose console people sign in to.
func (p *provider) settings(keys string) []string {
	return []string{
		"TRUSTED_PROXIES=127.0.0.1/32", "CONSOLE_URL=" + consoleURL, "CONSOLE_OIDC_ISSUER=" + p.server.URL, "CONSOLE_OIDC_CLIENT_ID=console",
		"CONSOLE_SESSION_KEYS=" + keys,
	}
}

// createOrganization creates that of the tokens.
func (p *provider) createOrganization(ctx context.Context, f *fleet.Fleet) error {
	_, err := f.OperatorCommand(ctx, "org", "create", "--name", "Drill", "--plan", "enterprise", "--app-config", "demo", "--external-id", p.organization)
	return err
}

// addControl starts a control of the fleet.
func addControl(ctx context.Context, f *fleet.Fleet, settings ...string) (*stack.Node, error) {
	addrs, err := fleet.FreeAddrs(1)
	if err != nil {
		return nil, err
	}
	control, err := f.StartControl(ctx, addrs[0], settings...)
	if err == nil {
		f.Controls = append(f.Controls, control)
	}
	return control, err
}

// answer is a response whose body was read.
type answer struct {
	status int
	code   string // of the error envelope
	header http.Header
	body   []byte
}

func (a answer) String() string { return fmt.Sprintf("%d %s", a.status, a.body) }

// send sends a request of the console's page, each from another address: the portal allows 30 requests a second per address.
func send(ctx context.Context, control *stack.Node, method, path, body string, cookies ...string) (a answer, err error) {
	request, err := http.NewRequestWithContext(ctx, method, control.URL()+path, strings.NewReader(body))
	if err != nil {
		return a, err
	}
	for name, value := range map[string]string{
		"X-Forwarded-For": visitor.Stranger().String(), "Origin": consoleURL, "Sec-Fetch-Site": "same-origin", "Deeplink-Console": "1",
		"Content-Type": "application/json", "Cookie": strings.Join(cookies, "; "),
	} {
		request.Header.Set(name, value)
	}
	response, err := fleet.Client.Do(request)
	if err != nil {
		return a, err
	}
	defer response.Body.Close()
	a.status, a.header = response.StatusCode, response.Header
	if a.body, err = io.ReadAll(response.Body); err != nil {
		return a, err
	}
	var envelope struct{ Code string }
	if a.status >= http.StatusBadRequest && json.Unmarshal(a.body, &envelope) == nil {
		a.code = envelope.Code
	}
	return a, nil
}

// cookie returns the pair of a cookie that a response sets.
func (a answer) cookie(name string) string {
	for _, line := range a.header.Values("Set-Cookie") {
		if pair, _, _ := strings.Cut(line, ";"); strings.HasPrefix(pair, name+"=") {
			return pair
		}
	}
	return ""
}

// discoveryTime bounds the wait for the discovery document of a control that has just started.
const discoveryTime = 20 * time.Second

// signIn signs a person in and returns the session cookie. before is the cookie of the previous session, or empty. The provider asks nothing, as with
// prompt=none.
func (p *provider) signIn(ctx context.Context, control *stack.Node, before string) (cookie string, err error) {
	deadline := time.Now().Add(discoveryTime)
	for {
		begun, err := send(ctx, control, "GET", "/console/sign-in?moved=1&prompt=none", "", before)
		if err != nil {
			return "", err
		}
		location, err := url.Parse(begun.header.Get("Location"))
		if err != nil || begun.status != http.StatusSeeOther {
			return "", fmt.Errorf("start of a sign-in: %s", begun)
		}
		query := location.Query()
		if location.Path != "/authorize" {
			if query.Get("problem") != "provider_unavailable" || time.Now().After(deadline) || !fleet.Pause(ctx, 20*time.Millisecond) {
				return "", fmt.Errorf("start of a sign-in: %s", location)
			}
			continue
		}
		if query.Get("prompt") != "none" || query.Get("code_challenge_method") != "S256" {
			return "", errors.New("the authorization request has another prompt, or no PKCE with S256")
		}
		code := p.authorize(query.Get("nonce"), query.Get("code_challenge"))
		ended, err := send(ctx, control, "GET", "/console/callback?"+url.Values{"code": {code}, "state": {query.Get("state")}}.Encode(), "",
			begun.cookie(browserCookie), before)
		if err != nil {
			return "", err
		}
		if cookie = ended.cookie(sessionCookie); cookie == "" || ended.header.Get("Location") != "/console" {
			return "", fmt.Errorf("callback: %s, to %s", ended, ended.header.Get("Location"))
		}
		return cookie, nil
	}
}

// tally counts responses.
type tally struct {
	all, unexpected int
	first           string // unexpected response
}

func (t *tally) add(a answer, expected int) {
	t.all++
	if a.status != expected {
		t.unexpected++
		if t.first == "" {
			t.first = a.String()
		}
	}
}

// use reads as the page does, and writes in every tenth call.
func (t *tally) use(ctx context.Context, control *stack.Node, cookie string) (answer, error) {
	method, path, body, expected := "GET", "/portal/organization", "", http.StatusOK
	if t.all%10 == 9 {
		method, path, body, expected = "POST", "/portal/links", `{"path":"/drill"}`, http.StatusCreated
	}
	a, err := send(ctx, control, method, path, body, cookie)
	if err != nil {
		return a, err
	}
	t.add(a, expected)
	return a, nil
}
