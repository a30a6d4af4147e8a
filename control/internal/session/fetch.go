package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

const (
	// fetchTimeout bounds one fetch. It is shorter than fetchEvery.
	fetchTimeout = 5 * time.Second
	// maxDocument and maxHeader bound the provider's response, in bytes.
	maxDocument = 256 << 10
	maxHeader   = 16 << 10
)

// outcome is the result of a fetch, as an error and as a metric label.
type outcome string

const (
	succeeded   outcome = "ok"
	unreachable outcome = "unreachable"
	badStatus   outcome = "status"
	badDocument outcome = "malformed"
	noKeys      outcome = "no_keys"
)

var outcomes = []outcome{succeeded, unreachable, badStatus, badDocument, noKeys}

func (o outcome) Error() string { return string(o) }

// newClient returns a client that uses the proxy of the environment and does not follow redirects.
func newClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	// An idle connection would be dead by the next fetch in ten minutes, and nothing would close it.
	transport.DisableKeepAlives = true
	transport.MaxResponseHeaderBytes = maxHeader
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// fetch returns the usable keys that the provider publishes and the number of unusable ones. The error is an outcome. A set without a usable
// key is an error, too: providers publish it by mistake, never to lock out all users.
func (k *keyring) fetch(ctx context.Context) (keys map[name]key, ignored int, err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url(), nil)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", unreachable, withoutURL(err))
	}
	request.Header.Set("Accept", "application/jwk-set+json, application/json")
	response, err := k.client.Do(request)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", unreachable, withoutURL(err))
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, 0, fmt.Errorf("%w: %s", badStatus, response.Status)
	}
	document, err := io.ReadAll(io.LimitReader(response.Body, maxDocument+1))
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", unreachable, err)
	}
	if len(document) > maxDocument {
		return nil, 0, fmt.Errorf("%w: more than %d bytes", badDocument, maxDocument)
	}
	keys, ignored, err = parseKeys(document)
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("%w: %w", badDocument, err)
	case len(keys) == 0:
		return nil, 0, fmt.Errorf("%w: %d of no use", noKeys, ignored)
	}
	return keys, ignored, nil
}

// withoutURL removes the URL from an error of net/http, because its query may contain a secret.
func withoutURL(err error) error {
	var failed *url.Error
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}
