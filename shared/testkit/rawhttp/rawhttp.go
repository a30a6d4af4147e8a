// Package rawhttp has a corpus of requests, byte for byte, as attackers, broken clients and servers that read HTTP in another way send
// them, with the answer that is expected to each: of an edge, of a control, and of both behind nginx as deploy/proxy sets it up
// (answers.txt). It is for tests alone.
package rawhttp

import (
	_ "embed"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// Target is a server that the corpus is sent to.
type Target struct {
	Addr string
	// Post begins a request whose body is read, and refused: the request line, and header lines but those about the body and [Host].
	Post string
	// PostPath is its path.
	PostPath string
	// column is which of the expected answers are meant.
	column int
}

// Edge is an edge at addr.
func Edge(addr string) Target {
	return Target{Addr: addr, Post: "POST /match HTTP/1.1\r\nContent-Type: application/json\r\n", PostPath: "/match", column: 0}
}

// Control is a control at addr, with a server key.
func Control(addr, key string) Target {
	return Target{Addr: addr, Post: "POST /links HTTP/1.1\r\nContent-Type: application/json\r\nAuthorization: Bearer " + key + "\r\n",
		PostPath: "/links", column: 1}
}

// Behind is the same server, reached through nginx at addr.
func (t Target) Behind(addr string) Target {
	t.Addr, t.column = addr, t.column+2
	return t
}

// proxied reports whether it is reached through nginx.
func (t Target) proxied() bool { return t.column > 1 }

// answers has a line for each request: its name, and what comes of it. An answer is its status, "read" when the body
// was read and refused for what it says, 9 for one by HTTP/0.9; then follows whether the connection
// is open or closed after the last. "=" is the column before.
//
//go:embed answers.txt
var answers string

const columns = 4

// expected returns what comes of each request at a target.
func expected(t *testing.T, column int) map[string]string {
	t.Helper()
	table := make(map[string]string)
	for line := range strings.Lines(answers) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		fields := strings.Split(line, "|")
		if len(fields) != 1+columns {
			t.Fatalf("answers.txt: %q has %d columns, expected %d", line, len(fields), 1+columns)
		}
		for i := range fields {
			if fields[i] = strings.TrimSpace(fields[i]); fields[i] == "=" {
				fields[i] = fields[i-1]
			}
		}
		if _, twice := table[fields[0]]; twice {
			t.Fatalf("answers.txt: %q is there twice", fields[0])
		}
		table[fields[0]] = fields[1+column]
	}
	return table
}

// Run sends each request of the corpus on a connection of its own and compares what comes back.
func Run(t *testing.T, to Target) {
	table := expected(t, to.column)
	for _, c := range corpus() {
		want, known := table[c.name]
		delete(table, c.name)
		t.Run(c.name, func(t *testing.T) {
			bytes := to.bytes(c)
			got, err := send(to, c, bytes)
			if err != nil {
				t.Fatalf("sent %.300q: %v", bytes, err)
			}
			if outcome := got.String(); !known || outcome != want {
				t.Errorf("sent %.300q: %s, expected %s\n%s", bytes, outcome, want, got.bodies())
			}
			for i, a := range got.answers {
				if fault := to.fault(c, a); fault != nil {
					t.Errorf("sent %.300q: answer %d: %v\n%v\n%s", bytes, i+1, fault, a.header, a.body)
				}
			}
		})
	}
	for name := range table {
		t.Errorf("answers.txt: nothing is sent for %q", name)
	}
}

// bytes returns the request as it is sent to the target.
func (t Target) bytes(c request) string {
	return strings.Replace(c.sent, post, t.Post+t.from()+Host, 1)
}

// from returns a header by which each request comes from another address, where the target trusts the address of the test.
func (t Target) from() string {
	return fmt.Sprintf("X-Forwarded-For: 198.51.%d.%d\r\n", t.column, clients.Add(1)%250)
}

var clients atomic.Int64

// path returns the path that envelopes name.
func (t Target) path(c request) string {
	switch {
	case c.path == noPath:
		return ""
	case c.path != "":
		return c.path
	case strings.HasPrefix(c.sent, post):
		return t.PostPath
	}
	return "/nothing"
}

func (g got) String() string {
	text := ""
	for _, a := range g.answers {
		if a.status == http.StatusBadRequest && strings.Contains(string(a.body), "Validation failed") {
			text += "read "
		} else {
			text += fmt.Sprintf("%d ", a.status)
		}
	}
	if g.open {
		return text + "open"
	}
	return text + "closed"
}

func (g got) bodies() string {
	text := ""
	for _, a := range g.answers {
		text += fmt.Sprintf("%v\n%s\n", a.header, a.body)
	}
	return text
}
