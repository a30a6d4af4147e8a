package testenv

import (
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// NameServer is a DNS server for TXT records, on UDP and TCP of one port.
type NameServer struct {
	t       testing.TB
	Address string

	Mu      sync.Mutex
	records map[string][]string // TXT by name, with the dot at its end
	rcode   dnsmessage.RCode    // of every response
	silent  bool
	Asked   []string
	before  func() // called before each response, unless nil
}

// NewNameServer starts a name server without records, which ends with the test.
func NewNameServer(t testing.TB) *NameServer {
	t.Helper()
	s := &NameServer{t: t, records: make(map[string][]string)}
	var stream net.Listener
	var packets net.PacketConn
	Await(t, "a port that is free on both protocols", func() (err error) {
		if stream, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return err
		}
		s.Address = stream.Addr().String()
		if packets, err = net.ListenPacket("udp", s.Address); err != nil {
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
func (s *NameServer) serveStream(c net.Conn) {
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

// answer returns the response to a query, truncated when it is longer than most. It is nil when the server stays silent.
func (s *NameServer) answer(query []byte, most int) []byte {
	s.Mu.Lock()
	defer s.Mu.Unlock()
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
	s.Asked = append(s.Asked, name)
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

// Set sets the values of the TXT record of a name. Without values the name does not exist.
func (s *NameServer) Set(name string, values ...string) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.records[name+"."] = values
}

// BeforeAnswer calls do before each response.
func (s *NameServer) BeforeAnswer(do func()) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.before = do
}

// Fail sets the code of every response. silent sends no response at all.
func (s *NameServer) Fail(rcode dnsmessage.RCode, silent bool) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.rcode, s.silent = rcode, silent
}
