package scenarios

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// matchTokens are unused tokens. Each is presented once; when none is left, all are presented again.
type matchTokens struct {
	all  []string
	next atomic.Uint64
}

var tokenInPage = regexp.MustCompile(`[?&]mt=([A-Za-z0-9_-]+)`)

// collectTokens clicks as iPhones do and reads the tokens from the pages.
func (l *loading) collectTokens(ctx context.Context) (*matchTokens, error) {
	tokens := new(matchTokens)
	client := &http.Client{Timeout: l.Timeout, Transport: &http.Transport{TLSClientConfig: l.config, MaxIdleConnsPerHost: 8}}
	pace := time.NewTicker(time.Second / 400) // an edge admits 500 requests per second of one address
	defer pace.Stop()
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for range l.Tokens {
		<-pace.C
		group.Go(func() error {
			token, err := l.readToken(ctx, client)
			mu.Lock()
			defer mu.Unlock()
			tokens.all = append(tokens.all, token)
			return err
		})
	}
	err := group.Wait()
	for _, token := range tokens.all {
		if err == nil && len(token) != len(tokens.all[0]) {
			err = errors.New("match tokens differ in length")
		}
	}
	return tokens, err
}

func (l *loading) readToken(ctx context.Context, client *http.Client) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, l.Base[0]+l.hot(), nil)
	if err != nil {
		return "", err
	}
	request.Host = l.edges[0].Host
	request.Header.Set("User-Agent", iPhoneAgent)
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	token := tokenInPage.FindSubmatch(page)
	if token == nil {
		return "", fmt.Errorf("the page of %s for an iPhone, status %d, has no match token", l.hot(), response.StatusCode)
	}
	return string(token[1]), nil
}

const matchBody = `{"clipboardToken":"`

func (m *matchTokens) bodyLength() int { return len(matchBody) + len(m.all[0]) + 2 }

// bodies are the bodies of POST /match.
func (m *matchTokens) bodies(int, *rand.Rand) func([]byte) []byte {
	return func(to []byte) []byte {
		token := m.all[(m.next.Add(1)-1)%uint64(len(m.all))]
		return append(append(append(to, matchBody...), token...), `"}`...)
	}
}
