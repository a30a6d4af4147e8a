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

const browser = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"

// headers are what a browser sends in addition to its User-Agent.
const headers = "Accept: text/html\r\nAccept-Language: en\r\n"

// visitors are requests with the class that they must be counted in. All classes that the API shows are there, and pages of each kind.
var visitors = []struct{ class, method, agent, headers string }{
	{"human", http.MethodGet, browser, headers},
	{"human", http.MethodGet, "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Mobile/15E148 Safari/604.1", headers},
	{"preview", http.MethodGet, "facebookexternalhit/1.1 (+http://www.facebook.com/externalhit_uatext.php)", ""},
	{"bot", http.MethodGet, "curl/8.5.0", "Accept: */*\r\n"},
	{"prefetch", http.MethodGet, browser, headers + "Sec-Purpose: prefetch\r\n"},
	{"head", http.MethodHead, "Mozilla/5.0 (X11; Linux x86_64; rv:142.0) Gecko/20100101 Firefox/142.0", headers},
	{"scanner", http.MethodGet, browser, "Accept: */*\r\n"},
	{"agent", http.MethodGet, "Mozilla/5.0 (compatible; ChatGPT-User/1.0; +https://openai.com/bot)", headers},
}

// responses are what clients know of one link and class.
type responses struct {
	answered int64 // complete responses
	unsure   int64 // requests without one
}

// ledger is what all clients know. A link belongs to one client at a time.
type ledger struct {
	mu    sync.Mutex
	free  []string // paths
	ids   map[string]string
	seen  map[key]*responses
	other map[int]int64 // responses with a status that no link of the run has, by status
}

func newLedger(ids map[string]string) *ledger {
	l := &ledger{ids: ids, seen: make(map[key]*responses), other: make(map[int]int64)}
	for path := range ids {
		l.free = append(l.free, path)
	}
	return l
}

// take returns a link that no client uses, chosen at random, and what is known of it in a class.
func (l *ledger) take(class string, random *rand.Rand) (path string, r *responses) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.free) == 0 {
		return "", nil
	}
	i, last := random.IntN(len(l.free)), len(l.free)-1
	path = l.free[i]
	l.free[i] = l.free[last]
	l.free = l.free[:last]
	k := key{l.ids[path], class}
	if l.seen[k] == nil {
		l.seen[k] = new(responses)
	}
	return path, l.seen[k]
}

// giveBack lets other clients use a link. A link with a request that has no response is not used again, so that such requests concern few links.
func (l *ledger) giveBack(path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free = append(l.free, path)
}

func (l *ledger) unexpected(status int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.other[status]++
}

// compare compares what was counted with what clients have seen. No client may be running.
func (l *ledger) compare(counted map[key]int64) []figures.Finding {
	var exact, sure, wrong, elsewhere int
	var answered, unsure, total int64
	first := ""
	links := make(map[string]bool) // and whether all its requests have responses
	for k, r := range l.seen {
		n := counted[k]
		answered += r.answered
		unsure += r.unsure
		total += n
		if intact, known := links[k.link]; !known || intact {
			links[k.link] = r.unsure == 0
		}
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
	intact := 0
	for _, all := range links {
		if all {
			intact++
		}
	}
	share := float64(intact) / float64(max(1, len(links)))
	return []figures.Finding{
		figures.None(fmt.Sprintf("links and classes with a wrong count (%d responses, %d requests without one, %d clicks counted%s)", answered, unsure, total, first), wrong, len(l.seen)),
		figures.Counted("links and classes without a request without a response, all of which are counted exactly", fmt.Sprintf("%d of %d", exact, sure), "all", exact == sure && sure > 0),
		figures.Counted("links without a request without a response", fmt.Sprintf("%d of %d", intact, len(links)), fmt.Sprintf("≥ %.0f %%", untouched*100), share >= untouched),
		figures.None("links and classes that are counted and were never requested", elsewhere, max(1, len(counted))),
		figures.None(fmt.Sprintf("responses with a status that no link of the run has %v", l.other), len(l.other), int(answered)),
	}
}

// client sends requests over one connection at a time. It changes its link after linkRequests requests, and when its connection breaks.
type client struct {
	*ledger
	addrs  []string
	pause  time.Duration
	random *rand.Rand
}

// linkRequests is how many requests a link gets in a row, so that a broken connection concerns few of them.
const linkRequests = 50

// run sends requests until ctx ends.
func (c client) run(ctx context.Context) {
	for ctx.Err() == nil {
		conn, err := net.DialTimeout("tcp", c.addrs[c.random.IntN(len(c.addrs))], time.Second)
		if err != nil {
			fleet.Pause(ctx, 10*time.Millisecond) // nothing was sent
			continue
		}
		for broken := false; !broken && ctx.Err() == nil; {
			visitor := visitors[c.random.IntN(len(visitors))]
			path, seen := c.take(visitor.class, c.random)
			if seen == nil {
				break // every link has a request without a response
			}
			unsure := seen.unsure
			broken = !c.requests(ctx, conn, path, visitor.method, visitor.agent, visitor.headers, seen)
			if seen.unsure == unsure {
				c.giveBack(path)
			}
		}
		conn.Close()
	}
}

// requests sends requests for one link. It returns false if the connection is broken.
func (c client) requests(ctx context.Context, conn net.Conn, path, method, agent, headers string, seen *responses) bool {
	reader := bufio.NewReader(conn)
	for range linkRequests {
		if ctx.Err() != nil {
			return true
		}
		_ = conn.SetDeadline(time.Now().Add(responseTimeout))
		n := c.random.IntN(1 << 16)
		_, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: %s\r\nX-Forwarded-For: 10.1.%d.%d\r\n%s\r\n",
			method, path, agent, n>>8, n&255, headers)
		if err != nil {
			seen.unsure++
			return false
		}
		response, err := http.ReadResponse(reader, &http.Request{Method: method})
		if err == nil {
			_, err = io.Copy(io.Discard, response.Body)
			response.Body.Close()
		}
		if err != nil {
			seen.unsure++
			return false
		}
		switch response.StatusCode {
		case http.StatusFound, http.StatusOK, http.StatusGone:
			seen.answered++
		case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		default:
			c.unexpected(response.StatusCode)
		}
		if response.Close {
			return false
		}
		fleet.Pause(ctx, c.pause)
	}
	return true
}
