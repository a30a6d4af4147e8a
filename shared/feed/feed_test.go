package feed_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deeplink/shared/feed"
)

func TestMessagesHaveTheirWireForm(t *testing.T) {
	t.Parallel()
	change := feed.Change{ID: 7, XID: math.MaxUint64, Tags: []string{
		feed.KeyTag("acme/one"), feed.DomainTag("go.acme.example"), feed.OrganizationTag("acme"), feed.Everything,
	}}
	ack := feed.Ack{ID: 7, Slot: "edge-1:8080", Incarnation: "0190"}
	// Edges and controls of two releases hear each other: the form is not to be changed.
	for got, expected := range map[string]string{
		string(change.Encode()): `{"id":7,"xid":"18446744073709551615","tags":["k:acme/one","d:go.acme.example","o:acme","*"]}`,
		string(ack.Encode()):    `{"id":7,"slot":"edge-1:8080","incarnation":"0190"}`,
	} {
		if got != expected {
			t.Errorf("got %s, expected %s", got, expected)
		}
	}
	gotChange, err := feed.ParseChange(string(change.Encode()))
	if diff := cmp.Diff(change, gotChange); diff != "" || err != nil {
		t.Errorf("change read back: %v (-expected +got):\n%s", err, diff)
	}
	gotAck, err := feed.ParseAck(string(ack.Encode()))
	if diff := cmp.Diff(ack, gotAck); diff != "" || err != nil {
		t.Errorf("acknowledgement read back: %v (-expected +got):\n%s", err, diff)
	}
}

func TestUnknownMembersOfAMessageAreIgnored(t *testing.T) {
	t.Parallel()
	if _, err := feed.ParseChange(`{"id":7,"xid":"9","tags":["*"],"later":{"release":2}}`); err != nil {
		t.Errorf("a change of a later release: %v", err)
	}
}

func TestLargestChangeFits(t *testing.T) {
	t.Parallel()
	change := feed.Change{ID: math.MaxInt64, XID: math.MaxUint64}
	for i := range 2 * 256 {
		change.Tags = append(change.Tags, feed.KeyTag(fmt.Sprintf("%s/%03d%s", strings.Repeat("h", 253), i, strings.Repeat("c", 61))))
	}
	got, err := feed.ParseChange(string(change.Encode()))
	if diff := cmp.Diff(change, got); diff != "" || err != nil {
		t.Errorf("a change of %d bytes: %v (-expected +got):\n%s", len(change.Encode()), err, diff)
	}
}

var notChanges = []string{
	``, `null`, `[]`, `"x"`, `{}`, `{`, `{"id":7,"xid":"9","tags":["*"]} x`,
	`{"id":0,"xid":"9","tags":["*"]}`, `{"id":-1,"xid":"9","tags":["*"]}`, `{"id":9223372036854775808,"xid":"9","tags":["*"]}`, `{"xid":"9","tags":["*"]}`,
	`{"id":7,"xid":"0","tags":["*"]}`, `{"id":7,"xid":"-1","tags":["*"]}`, `{"id":7,"xid":9,"tags":["*"]}`, `{"id":7,"xid":"18446744073709551616","tags":["*"]}`, `{"id":7,"tags":["*"]}`,
	`{"id":7,"xid":"9","tags":[]}`, `{"id":7,"xid":"9","tags":null}`, `{"id":7,"xid":"9"}`, `{"id":7,"xid":"9","tags":["x:1"]}`, `{"id":7,"xid":"9","tags":["*","K:1"]}`, `{"id":7,"xid":"9","tags":[1]}`,
	`{"id":7,"xid":"9","tags":["k:` + strings.Repeat("x", 256<<10) + `"]}`,
}

func TestParseChangeRejectsInvalidMessages(t *testing.T) {
	t.Parallel()
	for _, message := range notChanges {
		got, err := feed.ParseChange(message)
		if diff := cmp.Diff(feed.Change{}, got); err == nil || diff != "" {
			t.Errorf("%.80s: got %+v and %v, expected an error and nothing else", message, got, err)
		}
	}
}

func TestParseAckRejectsInvalidMessages(t *testing.T) {
	t.Parallel()
	for _, message := range []string{
		``, `null`, `{}`, `{"id":0,"slot":"a","incarnation":"b"}`, `{"id":7,"slot":"","incarnation":"b"}`, `{"id":7,"slot":"a"}`,
		`{"id":"7","slot":"a","incarnation":"b"}`, `{"id":7,"slot":"` + strings.Repeat("x", 256<<10) + `","incarnation":"b"}`,
	} {
		got, err := feed.ParseAck(message)
		if err == nil || got != (feed.Ack{}) {
			t.Errorf("%.80s: got %+v and %v, expected an error and nothing else", message, got, err)
		}
	}
}

func FuzzParseChange(f *testing.F) {
	f.Add(`{"id":7,"xid":"9","tags":["k:acme/one","d:go.acme.example","o:acme","*"]}`)
	for _, message := range notChanges[:len(notChanges)-1] {
		f.Add(message)
	}
	f.Fuzz(func(t *testing.T, message string) {
		change, err := feed.ParseChange(message)
		if err != nil {
			return
		}
		if change.ID <= 0 || change.XID == 0 || len(change.Tags) == 0 {
			t.Errorf("%q was read as %+v", message, change)
		}
		again, err := feed.ParseChange(string(change.Encode()))
		if diff := cmp.Diff(change, again); diff != "" || err != nil {
			t.Errorf("%q, read, written and read: %v (-first +second):\n%s", message, err, diff)
		}
	})
}

func FuzzParseAck(f *testing.F) {
	f.Add(`{"id":7,"slot":"edge-1:8080","incarnation":"0190"}`)
	f.Add(`{"id":7,"slot":"a","incarnation":""}`)
	f.Fuzz(func(t *testing.T, message string) {
		ack, err := feed.ParseAck(message)
		if err != nil {
			return
		}
		again, err := feed.ParseAck(string(ack.Encode()))
		if err != nil || again != ack {
			t.Errorf("%q was read as %+v, and after writing that as %+v, %v", message, ack, again, err)
		}
	})
}
