package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// nameServer is a DNS server on UDP and TCP of one port, as far as a resolver needs one.
type nameServer struct {
	t       testing.TB
	address string

	mu      sync.Mutex
	records map[string][]string // TXT by name, with the dot at its end
	rcode   dnsmessage.RCode    // answered to everything, when it is not success
	silent  bool
	asked   []string
	before  func() // called before each answer, when it is not nil
}

func newNameServer(t testing.TB) *nameServer {
	t.Helper()
	s := &nameServer{t: t, records: make(map[string][]string)}
	var stream net.Listener
	var packets net.PacketConn
	await(t, "a port that is free on both protocols", func() (err error) {
		if stream, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return err
		}
		s.address = stream.Addr().String()
		if packets, err = net.ListenPacket("udp", s.address); err != nil {
			return errors.Join(err, stream.Close())
		}
		return nil
	})
	var serving sync.WaitGroup
	serving.Go(func() {
		query := make([]byte, 1500)
		for {
			n, peer, err := packets.ReadFrom(query)
			if err != nil {
				return
			}
			if answer := s.answer(query[:n], 512); answer != nil {
				packets.WriteTo(answer, peer)
			}
		}
	})
	serving.Go(func() {
		for {
			c, err := stream.Accept()
			if err != nil {
				return
			}
			s.serveStream(c)
		}
	})
	t.Cleanup(func() {
		stream.Close()
		packets.Close()
		serving.Wait()
	})
	return s
}

// serveStream answers one query, after its length (RFC 1035, 4.2.2).
func (s *nameServer) serveStream(c net.Conn) {
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	query := make([]byte, 1500)
	n, err := c.Read(query)
	if err != nil || n < 2 {
		return
	}
	answer := s.answer(query[2:n], 1<<16)
	c.Write(append([]byte{byte(len(answer) >> 8), byte(len(answer))}, answer...))
}

// answer returns the answer to a query, cut off when it is longer than most. It is nil when there is none.
func (s *nameServer) answer(query []byte, most int) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	var parser dnsmessage.Parser
	header, err := parser.Start(query)
	if err != nil {
		return nil
	}
	question, err := parser.Question()
	if err != nil || question.Type != dnsmessage.TypeTXT {
		return nil
	}
	name := strings.ToLower(question.Name.String())
	s.asked = append(s.asked, name)
	if s.before != nil {
		s.before()
	}
	if s.silent {
		return nil
	}
	header.Response, header.RecursionAvailable, header.RCode = true, true, s.rcode
	message := dnsmessage.Message{Header: header, Questions: []dnsmessage.Question{question}}
	for _, text := range s.records[name] {
		var parts []string
		for part := range slices.Chunk([]byte(text), 255) {
			parts = append(parts, string(part))
		}
		message.Answers = append(message.Answers, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: question.Name, Type: dnsmessage.TypeTXT, Class: dnsmessage.ClassINET},
			Body:   &dnsmessage.TXTResource{TXT: parts},
		})
	}
	if message.Answers == nil && s.rcode == dnsmessage.RCodeSuccess {
		message.RCode = dnsmessage.RCodeNameError
	}
	packed, err := message.Pack()
	if err == nil && len(packed) > most {
		message.Truncated, message.Answers = true, nil
		packed, err = message.Pack()
	}
	if err != nil {
		return nil
	}
	return packed
}

// set makes the values those of a TXT record. No values: there is no such name.
func (s *nameServer) set(name string, values ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records[name+"."] = values
}

// meanwhile has do called before each answer.
func (s *nameServer) meanwhile(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = do
}

// fail makes every answer a failure, or none at all.
func (s *nameServer) fail(rcode dnsmessage.RCode, silent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rcode, s.silent = rcode, silent
}

// records are those of a name server that the test holds back.
type records struct {
	asked   atomic.Int64
	release chan struct{}
}

func (r *records) LookupTXT(ctx context.Context, _ string) ([]string, error) {
	r.asked.Add(1)
	select {
	case <-r.release:
		return []string{"yes"}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestLookupsAreBounded(t *testing.T) {
	t.Parallel()
	r := &records{release: make(chan struct{})}
	p := &prover{records: r, places: make(chan struct{}, maxLookups)}
	var group sync.WaitGroup
	var proved atomic.Int64
	for i := range 2 * maxLookups {
		group.Go(func() {
			if p.missing(t.Context(), fmt.Sprint("organization ", i), verification{Value: "yes"}) == "" {
				proved.Add(1)
			}
		})
	}
	await(t, "as many lookups as there may be, and the others waiting", func() error {
		organizations := 0
		p.looking.Range(func(any, any) bool { organizations++; return true })
		if n := r.asked.Load(); n < maxLookups || organizations < 2*maxLookups {
			return fmt.Errorf("%d lookups, %d organizations", n, organizations)
		}
		return nil
	})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if why := p.missing(gone, "another one", verification{Value: "yes"}); !strings.Contains(why, "Too many") {
		t.Errorf("one more: %q, expected that it is one too many", why)
	}
	if why := p.missing(t.Context(), "organization 0", verification{Value: "yes"}); !strings.Contains(why, "Another domain of yours") {
		t.Errorf("a second one of the same organization: %q, expected that it has to wait", why)
	}
	if n := r.asked.Load(); n != maxLookups {
		t.Errorf("%d lookups at once, expected %d", n, maxLookups)
	}
	close(r.release)
	group.Wait()
	if proved.Load() != 2*maxLookups {
		t.Errorf("%d of %d were proved", proved.Load(), 2*maxLookups)
	}
	if why := (&prover{records: &net.Resolver{PreferGo: true, Dial: refuseToDial}, places: make(chan struct{}, 1)}).missing(t.Context(), "", verification{Name: "a.example"}); !strings.Contains(why, "no answer") {
		t.Errorf("nobody to ask: %q, expected that there was no answer", why)
	}
}

func refuseToDial(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("refused")
}
