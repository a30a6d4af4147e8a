// Package feed defines the messages about changes between control and the edges: hints and acknowledgements over Redis, snapshots
// through Postgres. README.md in this folder is the protocol. The package is pure, and a lost message costs time only.
package feed

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// PollEvery is P: how often every edge polls Postgres for changes.
const PollEvery = 250 * time.Millisecond

// Redis channels. Every edge subscribes to Hints, every control to Acks.
const (
	Hints = "deeplink:hints"
	Acks  = "deeplink:acks"
)

// Everything is the tag that voids all entries of an edge.
const Everything = "*"

// SharedDomain stands in place of a domain for the association files of the shared host, which list the apps of all organizations. It
// can be neither an organization's key (four characters) nor a host (no dot).
const SharedDomain = "shared"

// Change is what one transaction made stale: a row of the table changes, or several rows joined. As a hint it lets edges bump the tags
// at once, which their next poll would bump anyway.
type Change struct {
	// ID is the identity of the row, or of the last of several rows. Acknowledgements carry it. Zero: there is no row, only a
	// transaction to wait for.
	ID int64 `json:"id"`
	// XID is the transaction (xid8).
	XID uint64 `json:"xid,string"`
	// Tags name what is stale: "k:" + key, "d:" + domain, "o:" + organization key, or Everything.
	Tags []string `json:"tags"`
}

// Ack says that an edge has bumped the tags of a change. An edge sends it after the bump, never before.
type Ack struct {
	ID          int64  `json:"id"`
	Slot        string `json:"slot"`
	Incarnation string `json:"incarnation"`
}

// KeyTag is the tag of one key, in the form of catalog.Key.
func KeyTag(key string) string { return "k:" + key }

// IsKeyTag reports whether a tag is one of KeyTag's.
func IsKeyTag(tag string) bool { return strings.HasPrefix(tag, "k:") }

// DomainTag is the tag of everything on one domain.
func DomainTag(domain string) string { return "d:" + domain }

// OrganizationTag is the tag of everything of one organization.
func OrganizationTag(orgKey string) string { return "o:" + orgKey }

// maxMessage bounds a message: twice the size of 256 tags of the longest key.
const maxMessage = 256 << 10

var errMessage = errors.New("invalid feed message")

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

// ParseChange reads a hint. After an error the receiver must treat the message as lost and not acknowledge it.
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
