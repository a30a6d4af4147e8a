package load

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// DesktopAgent is the User-Agent of a desktop browser, in which a link opens no app.
const DesktopAgent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"

// Source generates the requests of one connection. Only that connection's goroutine calls it.
type Source interface {
	// Next returns a whole request, header and body. The result is valid until Next is called again, which may reuse the memory.
	Next() []byte
}

// Fixed is a Source that repeats one request.
type Fixed []byte

// Next implements Source.
func (f Fixed) Next() []byte { return f }

// Request describes how to render requests. What changes between them is appended to a buffer of the connection.
type Request struct {
	Method string   // GET if ""
	Path   string   // unless Paths
	Header []string // lines such as "User-Agent: wrk"
	Body   string   // unless Bodies

	Paths Paths
	// Bodies is the same for bodies, each of which has BodyLength bytes.
	Bodies     Paths
	BodyLength int
	// Clients is the number of simulated clients, each with its own X-Forwarded-For. 0 sends none.
	Clients int
}

// Paths returns a function that appends the next path of a connection. It gets the connection's own random numbers, the same in every
// round.
type Paths func(connection int, random *rand.Rand) func(to []byte) []byte

// MaxClients is the number of addresses for clients, those in 10.0.0.0/8.
const MaxClients = 1 << 24

// Source returns the function for Options.Source.
func (r Request) Source() func(connection int, target Target) Source {
	return func(connection int, target Target) Source {
		if r.Paths == nil && r.Bodies == nil && r.Clients == 0 {
			return Fixed(r.start(r.Path) + r.header(target, len(r.Body)) + "\r\n" + r.Body)
		}
		return r.changing(connection, target)
	}
}

func (r Request) start(path string) string {
	method := r.Method
	if method == "" {
		method = "GET"
	}
	return method + " " + path
}

// header returns everything from the end of the path to the end of the last header line.
func (r Request) header(target Target, length int) string {
	var b strings.Builder
	fmt.Fprintf(&b, " HTTP/1.1\r\nHost: %s\r\n", target.Host)
	for _, line := range r.Header {
		b.WriteString(line + "\r\n")
	}
	if length > 0 {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", length)
	}
	return b.String()
}

func (r Request) changing(connection int, target Target) *changing {
	// Seeded by its number, a connection sends the same requests in every round and to every contender.
	random := rand.New(rand.NewPCG(uint64(connection), 0x6465657032))
	c := &changing{start: r.start(""), random: random, clients: r.Clients, end: "\r\n"}
	length := len(r.Body)
	if r.Bodies != nil {
		length = r.BodyLength
		c.body = r.Bodies(connection, random)
	} else {
		c.end += r.Body
	}
	if r.Paths != nil {
		c.path = r.Paths(connection, random)
	} else {
		c.start = r.start(r.Path)
	}
	c.header = r.header(target, length)
	if r.Clients > 0 {
		c.header += "X-Forwarded-For: "
		c.end = "\r\n" + c.end
	}
	return c
}

// changing generates the requests of one connection.
type changing struct {
	start, header, end string
	path, body         func(to []byte) []byte // nil: the path is part of start and end
	clients            int
	random             *rand.Rand
	buffer             []byte
}

func (c *changing) Next() []byte {
	b := append(c.buffer[:0], c.start...)
	if c.path != nil {
		b = c.path(b)
	}
	b = append(b, c.header...)
	if c.clients > 0 {
		b = appendClient(b, c.random.Uint32N(uint32(c.clients)))
	}
	b = append(b, c.end...)
	if c.body != nil {
		b = c.body(b)
	}
	c.buffer = b
	return b
}

// appendClient appends the n-th address of 10.0.0.0/8.
func appendClient(to []byte, n uint32) []byte {
	to = append(to, "10"...)
	for shift := 16; shift >= 0; shift -= 8 {
		to = strconv.AppendUint(append(to, '.'), uint64(n>>shift&0xff), 10)
	}
	return to
}
