// Package feed is the wire form of what control and the edges tell each other about changes: hints and acknowledgements over
// Redis, snapshots through Postgres. It is pure. What the messages promise is freshness.md; a message lost costs time only.
package feed

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// PollEvery is P: the pace at which every edge asks Postgres what has changed.
const PollEvery = 250 * time.Millisecond

// Redis channels. Every edge hears Hints, every control hears Acks.
const (
	Hints = "deeplink:hints"
	Acks  = "deeplink:acks"
)

// Everything is the tag that makes an edge forget all it knows.
const Everything = "*"

// SharedDomain stands, where a domain is named, for what all organizations have in common on the shared host: the files that
// associate their apps with it. No organization's key and no host is this word.
const SharedDomain = "shared"

// Change is what one transaction made edges forget: a row of changes, or several of them joined. As a hint it tells the
// edges to forget at once what their next poll would make them forget anyway.
type Change struct {
	// ID is the identity of the row, the last one of several. Acknowledgements name it. Zero: there is no row, only a
	// transaction to wait for.
	ID int64 `json:"id"`
	// XID is the transaction (xid8).
	XID uint64 `json:"xid,string"`
	// Tags name what to forget: "k:" + key, "d:" + domain, "o:" + organization key, or Everything.
	Tags []string `json:"tags"`
}

// Ack says that an edge has forgotten what a change named: it was bumped before this was sent.
type Ack struct {
	ID          int64  `json:"id"`
	Slot        string `json:"slot"`
	Incarnation string `json:"incarnation"`
}

// KeyTag, DomainTag and OrganizationTag name what a change voids. key is catalog.Key's form, domain its first part.
func KeyTag(key string) string { return "k:" + key }

// IsKeyTag reports whether a tag is one of KeyTag's.
func IsKeyTag(tag string) bool { return strings.HasPrefix(tag, "k:") }

// DomainTag is the tag of everything on one domain.
func DomainTag(domain string) string { return "d:" + domain }

// OrganizationTag is the tag of everything of one organization.
func OrganizationTag(orgKey string) string { return "o:" + orgKey }

// maxMessage bounds what is parsed: 256 tags of the longest key fit twice.
const maxMessage = 256 << 10

var errMessage = errors.New("not a message of the feed")

// Encode returns the message as bytes for Redis.
func (c Change) Encode() []byte { return encode(c) }

// Encode returns the message as bytes for Redis.
func (a Ack) Encode() []byte { return encode(a) }

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and integers always marshal
	}
	return b
}

// ParseChange reads a hint. A message that is not one is an error: whoever hears it must count it as lost, never act on it.
func ParseChange(message string) (Change, error) {
	var c Change
	if err := parse(message, &c); err != nil {
		return Change{}, err
	}
	if c.ID <= 0 || c.XID == 0 || len(c.Tags) == 0 {
		return Change{}, fmt.Errorf("%w: a hint needs id, xid and tags", errMessage)
	}
	for _, tag := range c.Tags {
		if tag != Everything && !strings.HasPrefix(tag, "k:") && !strings.HasPrefix(tag, "d:") && !strings.HasPrefix(tag, "o:") {
			return Change{}, fmt.Errorf("%w: unknown kind of tag", errMessage)
		}
	}
	return c, nil
}

// ParseAck reads an acknowledgement.
func ParseAck(message string) (Ack, error) {
	var a Ack
	if err := parse(message, &a); err != nil {
		return Ack{}, err
	}
	if a.ID <= 0 || a.Slot == "" || a.Incarnation == "" {
		return Ack{}, fmt.Errorf("%w: an acknowledgement needs id, slot and incarnation", errMessage)
	}
	return a, nil
}

func parse(message string, into any) error {
	if len(message) > maxMessage {
		return fmt.Errorf("%w: %d bytes", errMessage, len(message))
	}
	if err := json.Unmarshal([]byte(message), into); err != nil {
		return fmt.Errorf("%w: %w", errMessage, err)
	}
	return nil
}
