package session

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// badAnswers are what a provider in trouble says instead of its keys, by the result that is counted.
func badAnswers() map[string]struct {
	result outcome
	answer http.HandlerFunc
} {
	type bad = struct {
		result outcome
		answer http.HandlerFunc
	}
	document := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) }
	}
	status := func(code int) http.HandlerFunc {
		// The body would do.
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			io.WriteString(w, setOf(ed25519Key()))
		}
	}
	answers := map[string]bad{
		"500":             {badStatus, status(http.StatusInternalServerError)},
		"404":             {badStatus, status(http.StatusNotFound)},
		"429":             {badStatus, status(http.StatusTooManyRequests)},
		"203":             {badStatus, status(http.StatusNonAuthoritativeInfo)},
		"no keys":         {noKeys, document(setOf())},
		"no key of use":   {noKeys, document(setOf(ed25519Key().jwk(true), keyAgreement()))},
		"a byte too many": {badDocument, document(setOf(ed25519Key()) + strings.Repeat(" ", maxDocument+1-len(setOf(ed25519Key()))))},
	}
	for name, text := range badDocuments() {
		answers[name] = bad{badDocument, document(text)}
	}
	return answers
}

func TestInvalidResponsesYieldNoKeys(t *testing.T) {
	t.Parallel()
	for name, bad := range badAnswers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, url := newServer(t, "")
			p.answer(bad.answer)
			v := newVerifier(t, Options{KeysURL: url})
			v.fetchesEnd(t, bad.result)
			_, err := v.Verify(expiring(t), ed25519Key().token(noon, nil, nil), noon)
			if err == nil {
				t.Error("the token was taken")
			}
		})
	}
}

// expiring is a context that lets Verify wait for nothing.
func expiring(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestLargestAllowedResponseIsRead(t *testing.T) {
	t.Parallel()
	document := setOf(ed25519Key())
	_, url := newServer(t, document+strings.Repeat(" ", maxDocument-len(document)))
	v := newVerifier(t, Options{KeysURL: url})
	v.fetchesEnd(t, succeeded)
	if _, err := v.Verify(t.Context(), ed25519Key().token(noon, nil, nil), noon); err != nil {
		t.Error(err)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	forged, forgedURL := newServer(t, setOf(ed25519Key()))
	for _, status := range []int{301, 302, 303, 307, 308} {
		p, url := newServer(t, "")
		p.answer(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, forgedURL, status) })
		v := newVerifier(t, Options{KeysURL: url})
		v.fetchesEnd(t, badStatus)
	}
	if n := forged.fetches.Load(); n != 0 {
		t.Errorf("the target was asked %d times", n)
	}
}

func TestEndlessResponseIsCutOff(t *testing.T) {
	t.Parallel()
	p, url := newServer(t, "")
	p.answer(func(w http.ResponseWriter, _ *http.Request) {
		for err := error(nil); err == nil; {
			_, err = io.WriteString(w, strings.Repeat(" ", maxHeader))
		}
	})
	v := newVerifier(t, Options{KeysURL: url})
	v.fetchesEnd(t, badDocument)
}

func TestFetchKeepsNoConnection(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{}, 1)
	p := new(provider)
	p.publish(setOf(ed25519Key()))
	server := httptest.NewUnstartedServer(p)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	newVerifier(t, Options{KeysURL: server.URL})
	select {
	case <-closed:
	case <-time.After(bound):
		t.Error("the connection of the first fetch is still open")
	}
}

func TestFetchFailsWithoutAServer(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	v := newVerifier(t, Options{KeysURL: server.URL})
	v.fetchesEnd(t, unreachable)
}

func TestHeaderOfTheResponseIsBounded(t *testing.T) {
	t.Parallel()
	p, url := newServer(t, "")
	p.answer(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Large", strings.Repeat("x", 2*maxHeader))
		io.WriteString(w, setOf(ed25519Key()))
	})
	v := newVerifier(t, Options{KeysURL: url})
	v.fetchesEnd(t, unreachable)
}

// The provider hangs before its header, or in the middle of its body.
func TestRunEndsDuringAFetch(t *testing.T) {
	t.Parallel()
	for _, header := range []bool{false, true} {
		reached := make(chan struct{}, 1)
		p, url := newServer(t, "")
		p.answer(func(w http.ResponseWriter, r *http.Request) {
			if header {
				io.WriteString(w, `{"keys":[`)
				w.(http.Flusher).Flush()
			}
			reached <- struct{}{}
			<-r.Context().Done()
		})
		v, err := New(Options{KeysURL: url, Issuer: issuer, Log: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- v.Run(ctx) }()
		<-reached
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("header sent %v: Run returned %v", header, err)
			}
		case <-time.After(fetchTimeout / 2):
			t.Errorf("header sent %v: Run waited for the provider", header)
			<-ended
		}
		for result, n := range v.values(t, fetchesMetric) {
			if n != 0 {
				t.Errorf("header sent %v: an end was counted as %s", header, result)
			}
		}
	}
}
