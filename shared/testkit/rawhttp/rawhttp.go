// Package rawhttp has a corpus of requests, byte for byte, as attackers, broken clients, and servers with another interpretation of HTTP
// send them. answers.txt has the expected response to each: of an edge, of a control, and of both behind nginx with the configuration of
// deploy/proxy. It is for tests only.
package rawhttp

import (
	_ "embed"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// Target is a server to which the corpus is sent.
type Target struct {
	Addr string
	// Post starts a request whose body is read and rejected: the request line, and header lines except [Host] and those about the body.
	Post string
	// PostPath is its path.
	PostPath string
	// column is the column of the expected responses.
	column int
}

// Edge returns an edge at addr as a target.
func Edge(addr string) Target {
	return Target{Addr: addr, Post: "POST /match HTTP/1.1\r\nContent-Type: application/json\r\n", PostPath: "/match", column: 0}
}

// Control returns a control at addr, with a server key, as a target.
func Control(addr, key string) Target {
	return Target{Addr: addr, Post: "POST /links HTTP/1.1\r\nContent-Type: application/json\r\nAuthorization: Bearer " + key + "\r\n",
		PostPath: "/links", column: 1}
}

// Behind returns the same server behind nginx at addr.
func (t Target) Behind(addr string) Target {
	t.Addr, t.column = addr, t.column+2
	return t
}

// proxied reports whether it is reached through nginx.
func (t Target) proxied() bool { return t.column > 1 }

// answers has a line for each request: its name, and the expected result. A response is its status, "read" if a handler read and rejected
// the body, or 9 for HTTP/0.9; then follows whether the connection is open or closed after the last one. "=" repeats the previous column.
//
//go:embed answers.txt
var answers string

const columns = 4

// expected returns the expected result of each request at a target.
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
			t.Fatalf("answers.txt: %q occurs twice", fields[0])
		}
		table[fields[0]] = fields[1+column]
	}
	return table
}

// Run sends each request of the corpus on a new connection and compares the responses.
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
					t.Errorf("sent %.300q: response %d: %v\n%v\n%s", bytes, i+1, fault, a.header, a.body)
				}
			}
		})
	}
	for name := range table {
		t.Errorf("answers.txt: no request is named %q", name)
	}
}

// bytes returns the request in the form that is sent to the target.
func (t Target) bytes(c request) string {
	return strings.Replace(c.sent, post, t.Post+t.from()+Host, 1)
}

// from returns a header that gives each request another client address, if the target trusts the test's address.
func (t Target) from() string {
	return fmt.Sprintf("X-Forwarded-For: 198.51.%d.%d\r\n", t.column, clients.Add(1)%250)
}

var clients atomic.Int64

// path returns the path in the envelopes.
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
