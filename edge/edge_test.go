package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/shared/devservers"
	"deeplink/shared/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// bound is how long a test waits for a condition.
const bound = 20 * time.Second

// testEdge is an edge as main runs it, over a real PostgreSQL and Redis of its own.
type testEdge struct {
	addr, admin string
	settings    *options
	owner       *pgx.Conn
	log         *logBuffer
	stop        context.CancelFunc
	ended       <-chan error
}

// testTokenKeys is a valid MATCH_TOKEN_KEYS.
var testTokenKeys = matchTokenKeys(strings.Repeat("ab", 32))

// base is LINK_BASE_URL in all tests.
const base = "https://go.example.com"

// startEdge starts an edge on a database of its own and waits until it is ready. change may be nil.
func startEdge(t *testing.T, change func(*options)) *testEdge {
	t.Helper()
	database := testkit.NewDatabase(t)
	return startEdgeOn(t, *database, change)
}

func startEdgeOn(t *testing.T, database testkit.Database, change func(*options)) *testEdge {
	t.Helper()
	e := &testEdge{addr: freeAddr(t), admin: freeAddr(t), owner: testkit.Connect(t, database.URL), log: new(logBuffer)}
	c, err := parseSettings([]string{
		"--database-url", database.EdgeURL, "--redis-url", testkit.NewRedis(t).URL(), "--link-base-url", base,
		"--edge-addr", e.addr, "--edge-admin-addr", e.admin, "--edge-slot", e.addr, "--edge-drain", "0s", "--edge-cache-bytes", "16777216",
		"--edge-clicks-dir", t.TempDir(), "--edge-clicks-bytes", "16777216",
	}, io.Discard, io.Discard, func(int) { t.Fatal("the settings made the edge exit") })
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(c)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		defer close(ended)
		ended <- serve(ctx, c, c.Logger(e.log))
	}()
	e.settings, e.stop, e.ended = c, stop, ended
	t.Cleanup(func() {
		stop()
		select {
		case err, open := <-ended:
			if open && err != nil {
				t.Errorf("serve returned %v", err)
			}
		case <-time.After(bound):
			t.Error("serve did not end")
		}
		if t.Failed() {
			t.Logf("the edge logged:\n%s", e.log)
		}
	})
	until(t, "the edge is ready", func() bool {
		answer, err := http.Get("http://" + e.admin + "/readyz")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	return e
}

func freeAddr(t *testing.T) string {
	t.Helper()
	addr, err := devservers.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// until waits until the condition is true.
func until(t testing.TB, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(bound); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", bound, what)
		}
	}
}

// warnings returns the warnings of a log, except those caused by a machine that is too busy.
func warnings(log string) (lines []string) {
	for line := range strings.Lines(log) {
		late := strings.Contains(line, `msg="poll failed"`) || strings.Contains(line, `msg="hints are lost`)
		if strings.Contains(line, "level=WARN") && !late {
			lines = append(lines, line)
		}
	}
	return lines
}

// logBuffer collects the log of an edge.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

var discard = slog.New(slog.DiscardHandler)

// rows inserts into the catalog, by SQL as the owner of the tables.
type rows struct {
	t     testing.TB
	owner *pgx.Conn
}

func (r rows) exec(statement string, values ...any) {
	r.t.Helper()
	if _, err := r.owner.Exec(context.Background(), statement, values...); err != nil {
		r.t.Fatalf("%s: %v", statement, err)
	}
}

// organization creates an organization with its shared domain and returns its id.
func (r rows) organization(orgKey string) (id string) {
	r.t.Helper()
	r.query(&id, `insert into organizations (id, org_key, name) values (gen_random_uuid(), $1, $1) returning id::text`, orgKey)
	r.exec(`insert into domains (id, organization_id, host, status) values (gen_random_uuid(), $1, null, 'verified')`, id)
	return id
}

// domain creates a custom domain and returns its id.
func (r rows) domain(organizationID, host, status string) (id string) {
	r.t.Helper()
	r.query(&id, `insert into domains (id, organization_id, host, status) values (gen_random_uuid(), $1, $2, $3) returning id::text`,
		organizationID, host, status)
	return id
}

// link creates a link on the shared host, with these columns in addition to its code, and returns its id.
func (r rows) link(organizationID, code string, columns map[string]any) (id string) {
	r.t.Helper()
	names, places := "", ""
	values := []any{organizationID, code}
	if _, set := columns["domain_id"]; !set {
		var shared string
		r.query(&shared, `select id::text from domains where organization_id = $1 and host is null`, organizationID)
		names, places, values = ", domain_id", ", $3", append(values, shared)
	}
	if _, set := columns["path"]; !set {
		names, places = names+", path", places+", 'somewhere'"
	}
	for name, value := range columns {
		values = append(values, value)
		names, places = names+", "+name, fmt.Sprintf("%s, $%d", places, len(values))
	}
	r.query(&id, `insert into links (id, organization_id, short_code`+names+`) values (gen_random_uuid(), $1, $2`+places+`) returning id::text`, values...)
	return id
}

func (r rows) query(into *string, statement string, values ...any) {
	r.t.Helper()
	if err := r.owner.QueryRow(context.Background(), statement, values...).Scan(into); err != nil {
		r.t.Fatalf("%s: %v", statement, err)
	}
}

// answer is a response, read to its end.
type answer struct {
	status int
	header http.Header
	body   string
	last   bool // the server closes the connection after it
}

// get sends a GET with header lines "Name: value". Host is the shared host unless it is among them.
func (e *testEdge) get(t testing.TB, path string, header ...string) answer {
	t.Helper()
	return e.ask(t, http.MethodGet, path, header...)
}

func (e *testEdge) ask(t testing.TB, method, path string, header ...string) answer {
	t.Helper()
	return e.send(t, request(method, path, header...))
}

// request returns an HTTP/1.1 request that closes its connection.
func request(method, path string, header ...string) string {
	text, host := "", "Host: go.example.com\r\n"
	for _, line := range header {
		if len(line) > 5 && line[:5] == "Host:" {
			host = ""
		}
		text += line + "\r\n"
	}
	return method + " " + path + " HTTP/1.1\r\n" + host + text + "Connection: close\r\n\r\n"
}

// send sends bytes on a new connection and reads one response.
func (e *testEdge) send(t testing.TB, raw string) answer {
	t.Helper()
	a, err := roundTrip(e.addr, raw)
	if err != nil {
		t.Fatalf("sent %.300q: %v", raw, err)
	}
	return a
}

func roundTrip(addr, raw string) (answer, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return answer{}, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(bound)); err != nil {
		return answer{}, err
	}
	// An edge that rejects a request early may close the connection before all of it was sent.
	_, _ = io.WriteString(c, raw)
	return readAnswer(c, raw)
}

func (a answer) envelope(t testing.TB) map[string]any {
	t.Helper()
	var e map[string]any
	if err := json.Unmarshal([]byte(a.body), &e); err != nil {
		t.Fatalf("not an envelope: %q: %v", a.body, err)
	}
	return e
}

// dial opens a connection with a deadline of bound.
func (e *testEdge) dial(t testing.TB) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", e.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(bound)); err != nil {
		t.Fatal(err)
	}
	return c
}

// pipeline sends several requests on one connection and returns the responses in order.
func (e *testEdge) pipeline(t testing.TB, raw string, requests int) []answer {
	t.Helper()
	c := e.dial(t)
	go io.WriteString(c, raw)
	reader, answers := bufio.NewReader(c), make([]answer, requests)
	for i := range answers {
		var err error
		if answers[i], err = parseAnswer(reader, http.MethodGet); err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
	}
	return answers
}

// readAnswer reads the response to a request and requires that nothing follows it.
func readAnswer(from io.Reader, sent string) (answer, error) {
	method, _, _ := strings.Cut(sent, " ")
	reader := bufio.NewReader(from)
	a, err := parseAnswer(reader, method)
	if err != nil {
		return answer{}, err
	}
	if rest, _ := io.ReadAll(reader); len(rest) > 0 {
		return answer{}, fmt.Errorf("%d bytes after the answer: %.100q", len(rest), rest)
	}
	return a, nil
}

func parseAnswer(reader *bufio.Reader, method string) (answer, error) {
	response, err := http.ReadResponse(reader, &http.Request{Method: method})
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(body), response.Close}, err
}
