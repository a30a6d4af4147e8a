package load

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// DesktopAgent is the User-Agent of a browser on a desk, where a link opens no app.
const DesktopAgent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"

// Source gives the requests of one connection one after the other. Only that connection's goroutine calls it.
type Source interface {
	// Next returns a whole request, header and body. It is sent before Next is called again, which may use the same memory.
	Next() []byte
}

// Fixed is the same request again and again.
type Fixed []byte

// Next implements Source.
func (f Fixed) Next() []byte { return f }

// Request is how requests are rendered. What changes from one to the next is appended into memory of the connection.
type Request struct {
	Method string   // GET if ""
	Path   string   // unless Paths
	Header []string // lines such as "User-Agent: wrk"
	Body   string   // unless Bodies

	Paths Paths
	// Bodies is the same for bodies, each of which has BodyLength bytes.
	Bodies     Paths
	BodyLength int
	// Clients is how many clients ask, each with an X-Forwarded-For of its own. 0 sends none.
	Clients int
}

// Paths returns what appends the next path of a connection, which gets random numbers of its own: in every round the same.
type Paths func(connection int, random *rand.Rand) func(to []byte) []byte

// MaxClients is how many addresses there are for them, those in 10.0.0.0/8.
const MaxClients = 1 << 24

// Source returns what Options.Source has to be.
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

// header is everything from the end of the path to the end of the last line of the header.
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
	// Seeded by its number, a connection asks for the same in every round and of every contender.
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

// changing is the requests of one connection.
type changing struct {
	start, header, end string
	path, body         func(to []byte) []byte // nil: in start and end
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
