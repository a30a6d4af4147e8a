package clicks

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/fleet"
)

// responseTimeout bounds a request. It is longer than an edge waits for Postgres.
const responseTimeout = 10 * time.Second

// visitors are requests with the class that they must be counted in.
var visitors = []struct{ class, method, agent string }{
	{"human", http.MethodGet, "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"},
	{"preview", http.MethodGet, "facebookexternalhit/1.1 (+http://www.facebook.com/externalhit_uatext.php)"},
	{"bot", http.MethodGet, "curl/8.5.0"},
	{"head", http.MethodHead, "Mozilla/5.0 (X11; Linux x86_64; rv:142.0) Gecko/20100101 Firefox/142.0"},
}

// responses are what clients know of one link and class.
type responses struct {
	answered int64 // complete responses
	unsure   int64 // requests without one
}

// ledger is what all clients know. A link belongs to one client at a time.
type ledger struct {
	mu   sync.Mutex
	free []string // paths
	ids  map[string]string
	seen map[key]*responses
}

func newLedger(ids map[string]string) *ledger {
	l := &ledger{ids: ids, seen: make(map[key]*responses)}
	for path := range ids {
		l.free = append(l.free, path)
	}
	return l
}

// take returns a link that no client uses, and what is known of it in a class. The link is not used again.
func (l *ledger) take(class string) (path string, r *responses) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.free) == 0 {
		return "", nil
	}
	path = l.free[len(l.free)-1]
	l.free = l.free[:len(l.free)-1]
	k := key{l.ids[path], class}
	l.seen[k] = new(responses)
	return path, l.seen[k]
}

// compare compares what was counted with what clients have seen. No client may be running.
func (l *ledger) compare(counted map[key]int64) []figures.Finding {
	var exact, sure, wrong, elsewhere int
	var answered, unsure, total int64
	first := ""
	for k, r := range l.seen {
		n := counted[k]
		answered += r.answered
		unsure += r.unsure
		total += n
		if r.unsure == 0 {
			sure++
		}
		switch {
		case n < r.answered || n > r.answered+r.unsure:
			wrong++
			if first == "" {
				first = fmt.Sprintf("; the first: %v has %d clicks, %d responses, %d requests without a response", k, n, r.answered, r.unsure)
			}
		case r.unsure == 0:
			exact++
		}
	}
	for k := range counted {
		if l.seen[k] == nil {
			elsewhere++
		}
	}
	share := float64(sure) / float64(max(1, len(l.seen)))
	return []figures.Finding{
		figures.None(fmt.Sprintf("links with a wrong count (%d responses, %d requests without one, %d clicks counted%s)", answered, unsure, total, first), wrong, len(l.seen)),
		figures.Counted("links without a broken connection, all of which are counted exactly", fmt.Sprintf("%d of %d", exact, len(l.seen)), fmt.Sprintf("≥ %.0f %%", untouched*100), exact == sure && share >= untouched),
		figures.None("links and classes that are counted and were never requested", elsewhere, max(1, len(counted))),
	}
}

// client sends requests over one connection at a time. It changes its link after linkRequests requests, and when its connection breaks.
type client struct {
	*ledger
	addrs  []string
	pause  time.Duration
	random *rand.Rand
}

// linkRequests is how many requests a link gets, so that a broken connection concerns few of them.
const linkRequests = 50

func (c client) run(ctx context.Context) {
	for ctx.Err() == nil {
		visitor := visitors[c.random.IntN(len(visitors))]
		conn, err := net.DialTimeout("tcp", c.addrs[c.random.IntN(len(c.addrs))], time.Second)
		if err != nil {
			fleet.Pause(ctx, 10*time.Millisecond) // nothing was sent
			continue
		}
		for broken := false; !broken && ctx.Err() == nil; {
			path, seen := c.take(visitor.class)
			if seen == nil {
				conn.Close()
				return
			}
			broken = !c.requests(ctx, conn, path, visitor.method, visitor.agent, seen)
		}
		conn.Close()
	}
}

// requests sends requests for one link. It returns false if the connection is broken.
func (c client) requests(ctx context.Context, conn net.Conn, path, method, agent string, seen *responses) bool {
	reader := bufio.NewReader(conn)
	for range linkRequests {
		if ctx.Err() != nil {
			return true
		}
		_ = conn.SetDeadline(time.Now().Add(responseTimeout))
		n := c.random.IntN(1 << 16)
		_, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: %s\r\nX-Forwarded-For: 10.1.%d.%d\r\nAccept: text/html\r\nAccept-Language: en\r\n\r\n",
			method, path, agent, n>>8, n&255)
		if err != nil {
			seen.unsure++
			return false
		}
		response, err := http.ReadResponse(reader, &http.Request{Method: method})
		if err == nil {
			_, err = io.Copy(io.Discard, response.Body)
			response.Body.Close()
		}
		switch {
		case err != nil:
			seen.unsure++
			return false
		case response.StatusCode == http.StatusFound || response.StatusCode == http.StatusOK:
			seen.answered++
		}
		if response.Close {
			return false
		}
		fleet.Pause(ctx, c.pause)
	}
	return true
}
