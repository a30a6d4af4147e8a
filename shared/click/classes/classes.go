// Package classes measures how well the rules of package click classify requests whose class is known. Only tests and measurements use it.
package classes

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	crawlers "github.com/monperrus/crawler-user-agents"

	"deeplink/shared/agent"
	"deeplink/shared/click"
)

// Request is a real request whose class is known from its source. shared/click/testdata/README.md says how the requests were collected.
type Request struct {
	// ID names the request. Its hash decides whether the request is held out.
	ID      string      `json:"id"`
	Class   string      `json:"class"`
	Client  string      `json:"client"`
	Method  string      `json:"method"`
	Headers [][2]string `json:"headers"` // in the order in which the client sent them
	// Source is where the headers are documented.
	Source string `json:"source"`
	// AcceptSource documents Accept, if Source documents the User-Agent only.
	AcceptSource string `json:"acceptSource,omitempty"`
	// Owner is the page of the client's owner, if Source is a collection.
	Owner string `json:"owner,omitempty"`
	// Outside says why the request is not part of precision and recall, "disguised" if its headers do not tell what sent it: no rule can.
	Outside string `json:"outside,omitempty"`
}

// HeldOut reports whether the request is of the third by which no rule was written.
func (r *Request) HeldOut() bool { return sha256.Sum256([]byte(r.ID))[0]%3 == 0 }

// agentOnly reports whether the source documents the User-Agent only. Rules by other headers then decide nothing.
func (r *Request) agentOnly() bool {
	return len(r.Headers) == 1 && strings.EqualFold(r.Headers[0][0], "User-Agent") && r.Method != "HEAD"
}

// Reason returns the rule that control applies to the request.
func (r *Request) Reason() click.Reason {
	facts := click.Read([]byte(r.UserAgent()))
	if crawlers.IsCrawler(r.UserAgent()) {
		facts |= click.FactListed
	}
	return click.Classify(r.Evidence(), facts)
}

// UserAgent returns the User-Agent, "" if there is none.
func (r *Request) UserAgent() string { return r.header("User-Agent") }

func (r *Request) header(name string) string {
	for _, h := range r.Headers {
		if strings.EqualFold(h[0], name) {
			return h[1]
		}
	}
	return ""
}

// Evidence is what the edge stores of the request.
func (r *Request) Evidence() (e click.Evidence) {
	if r.Method == "HEAD" {
		e |= click.EvidenceHead
	}
	for _, h := range r.Headers {
		value := []byte(h[1])
		switch strings.ToLower(h[0]) {
		case "accept":
			e |= click.Accept(value)
		case "accept-language":
			e |= click.EvidenceLanguage
		case "purpose", "x-purpose":
			e |= click.Purpose(value, true)
		case "sec-purpose", "x-moz":
			e |= click.Purpose(value, false)
		case "sec-ch-ua":
			e |= click.BrandHint(value)
		case "sec-ch-ua-platform":
			e |= click.PlatformHint(value)
		}
	}
	if strings.TrimSpace(r.UserAgent()) == "" {
		e |= click.EvidenceNoAgent
	}
	if agent.Parse([]byte(r.UserAgent()), []byte(r.header("Sec-CH-UA-Platform"))).Platform == agent.Bot {
		e |= click.EvidenceBotPage
	}
	return e
}

// Read reads requests, one JSON object a line. It fails if a line lacks an id, a source, or a class that exists.
func Read(path string) ([]Request, error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var requests []Request
	seen := make(map[string]bool)
	lines := bufio.NewScanner(bytes.NewReader(file))
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var r Request
		decoder := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&r); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n, err)
		}
		if _, ok := click.ParseClass(r.Class); !ok || r.ID == "" || seen[r.ID] || r.Source == "" || r.Method == "" {
			return nil, fmt.Errorf("%s:%d: %q: %w", path, n, r.ID, errIncomplete)
		}
		seen[r.ID] = true
		requests = append(requests, r)
	}
	return requests, lines.Err()
}

var errIncomplete = errors.New("a request needs an id of its own, a class, a method and a source")
