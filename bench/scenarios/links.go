package scenarios

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"deeplink/bench/load"
)

// writesPerKey and readsPerKey are slightly below the 100 and 1,000 per second that control admits per server key.
const writesPerKey, readsPerKey = 90, 900

// backend is the backend of an organization: its calls outside the rounds, and the links that it created. They have a tag by which they can
// be found.
type backend struct {
	base, key, tag string
	client         *http.Client
	pace           *time.Ticker
	links          []ownLink
	unswept        atomic.Bool // there are links that sweep must delete
}

type ownLink struct{ id, path string }

func newBackend(base, key string, config *tls.Config) *backend {
	return &backend{
		base: base, key: key, tag: fmt.Sprintf("bench-load-%08x", rand.Uint32()), pace: time.NewTicker(time.Second / writesPerKey),
		client: &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: config, MaxIdleConnsPerHost: 16}},
	}
}

// call makes one call, which must return the expected status, and decodes the response into to unless that is nil.
func (b *backend) call(ctx context.Context, method, path string, body []byte, want int, to any) (*http.Response, error) {
	if method != http.MethodGet {
		select {
		case <-b.pace.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return b.callNow(ctx, method, path, body, want, to)
}

// callNow is call without the rate limit.
func (b *backend) callNow(ctx context.Context, method, path string, body []byte, want int, to any) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, b.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+b.key)
	request.Header.Set("Content-Type", "application/json")
	response, err := b.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != want {
		return response, fmt.Errorf("%s %s returned status %d: %s", method, path, response.StatusCode, text)
	}
	if to == nil {
		return response, nil
	}
	return response, json.Unmarshal(text, to)
}

// orgKey returns the key of the organization, from the short URL of one of its links on the shared host; "" if there is none.
func (b *backend) orgKey(ctx context.Context) (string, error) {
	var page struct{ Data []struct{ URL string } }
	if _, err := b.call(ctx, http.MethodGet, "/links?limit=1", nil, http.StatusOK, &page); err != nil || len(page.Data) == 0 {
		return "", err
	}
	short, err := url.Parse(page.Data[0].URL)
	if err != nil {
		return "", err
	}
	orgKey, _, onSharedHost := strings.Cut(strings.TrimPrefix(short.Path, "/"), "/") // https://{host}/{code} on a custom domain
	if !onSharedHost {
		return "", nil
	}
	return orgKey, nil
}

func (b *backend) newLink() []byte {
	return fmt.Appendf(nil, `{"path":"/load","fallbackUrl":"https://example.com/load","tags":["%s"]}`, b.tag)
}

// make creates a link.
func (b *backend) make(ctx context.Context) (ownLink, error) {
	var link struct{ ID, URL string }
	b.unswept.Store(true)
	if _, err := b.call(ctx, http.MethodPost, "/links", b.newLink(), http.StatusCreated, &link); err != nil {
		return ownLink{}, err
	}
	short, err := url.Parse(link.URL)
	if err != nil {
		return ownLink{}, err
	}
	return ownLink{link.ID, short.Path}, nil
}

// makeAll creates links to click, edit and read.
func (b *backend) makeAll(ctx context.Context, count int) error {
	for range count {
		link, err := b.make(ctx)
		if err != nil {
			return err
		}
		b.links = append(b.links, link)
	}
	return nil
}

// idPaths are the API paths of the created links.
func (b *backend) idPaths() *load.Keys {
	var paths []string
	for _, link := range b.links {
		paths = append(paths, "/links/"+link.id)
	}
	return load.NewKeys(paths...)
}

// sweep deletes all links with the tag.
func (b *backend) sweep(ctx context.Context) error {
	if !b.unswept.Load() {
		return nil
	}
	for {
		var page struct {
			Data []struct{ ID string }
		}
		if _, err := b.call(ctx, http.MethodGet, "/links?limit=100&tag="+b.tag, nil, http.StatusOK, &page); err != nil {
			return err
		}
		if len(page.Data) == 0 {
			b.unswept.Store(false)
			return nil
		}
		for _, link := range page.Data {
			if _, err := b.call(ctx, http.MethodDelete, "/links/"+link.ID, nil, http.StatusOK, nil); err != nil {
				return err
			}
		}
	}
}

// sweep deletes the links that were created. An interrupt ends it early.
func (l *loading) sweep() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if slices.ContainsFunc(l.backends, func(b *backend) bool { return b.unswept.Load() }) {
		fmt.Fprintln(l.errOut, "deleting the links that were created; Ctrl-C leaves them")
	}
	var group errgroup.Group
	for _, b := range l.backends {
		group.Go(func() error {
			if err := b.sweep(ctx); err != nil {
				return fmt.Errorf("links with the tag %s remain: %w", b.tag, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		fmt.Fprintln(l.errOut, "bench:", err)
	}
}

// findLinks returns the links that the scenarios need: named by --keys or --prefix, or newly created.
func (l *loading) findLinks(ctx context.Context) error {
	var needs scenario
	for _, name := range l.Scenarios {
		s := scenarios[name]
		if s.keys && len(l.backends) == 0 {
			return fmt.Errorf("%s calls the API: set --server-key", name)
		}
		needs.clicks, needs.made, needs.keys = needs.clicks || s.clicks, needs.made || s.made, needs.keys || s.keys
	}
	named := l.Keys != "" || l.Prefix != ""
	if needs.clicks && !named && len(l.backends) == 0 {
		return errors.New("no links to request: name them with --keys or --prefix, or set --server-key to create some")
	}
	if writes := needs.keys || needs.clicks && !named; writes {
		if err := l.confirmWrites(ctx); err != nil {
			return err
		}
	}
	if needs.made || needs.clicks && !named {
		if err := l.makeLinks(ctx); err != nil {
			return fmt.Errorf("create links: %w", err)
		}
	}
	if l.Keys == "" {
		return nil
	}
	var err error
	l.keys, err = load.ReadKeys(l.Keys)
	return err
}

// makeLinks creates the wanted number of links; clicks go to them unless other links are named.
func (l *loading) makeLinks(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, b := range l.backends {
		group.Go(func() error { return b.makeAll(ctx, (l.Links+len(l.backends)-1)/len(l.backends)) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	var paths []string
	for _, b := range l.backends {
		for _, link := range b.links {
			paths = append(paths, link.path)
		}
	}
	if l.Prefix == "" {
		l.keys = load.NewKeys(paths...)
	}
	return nil
}
