package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"github.com/google/uuid"

	"deeplink/bench/prove/fleet"
)

// phonePatience is how long a phone waits for a response.
const phonePatience = 5 * time.Second

// batch is what a phone sends in one request. Retries keep the ids.
type batch struct {
	ids  []uuid.UUID
	body []byte
}

// newBatch makes n events of a device, with random ids as phones make them. session may be empty.
func newBatch(random *rand.Rand, device, session string, n int) batch {
	b := batch{ids: make([]uuid.UUID, n), body: make([]byte, 0, 100+200*n)}
	b.body = fmt.Appendf(b.body, `{"deviceId":%q,`, device)
	if session != "" {
		b.body = fmt.Appendf(b.body, `"sessionId":%q,`, session)
	}
	b.body = append(b.body, `"events":[`...)
	now := time.Now().UTC()
	for i := range b.ids {
		b.ids[i] = randomID(random)
		if i > 0 {
			b.body = append(b.body, ',')
		}
		b.body = append(b.body, `{"id":"`...)
		b.body = append(b.body, b.ids[i].String()...)
		b.body = append(b.body, `","name":"screen_view","timestamp":"`...)
		b.body = now.AppendFormat(b.body, "2006-01-02T15:04:05.000Z")
		b.body = fmt.Appendf(b.body, `","properties":{"screen":"product","position":%d}}`, i)
	}
	b.body = append(b.body, `]}`...)
	return b
}

// randomID makes a UUID of version 4.
func randomID(random *rand.Rand) (id uuid.UUID) {
	for i := range id {
		if i%8 == 0 {
			word := random.Uint64()
			for j := range 8 {
				id[i+j] = byte(word >> (8 * j))
			}
		}
	}
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id
}

// receipt is the response to a batch.
type receipt struct {
	Accepted   int
	Duplicates int
	Rejected   []struct {
		Index   int
		Message string
	}
}

// attempt is the result of sending a batch once. Without a response, status is 0 and failure says why.
type attempt struct {
	status  int
	failure string
	receipt receipt // if the status is 200
	odd     string  // what is wrong with the response, if anything
	took    time.Duration
}

// acknowledged reports whether the batch needs no retry.
func (a attempt) acknowledged() bool { return a.status == http.StatusOK && a.odd == "" }

// sendBatch sends a batch once.
func sendBatch(ctx context.Context, addr, apiKey string, b batch) (a attempt) {
	ctx, cancel := context.WithTimeout(ctx, phonePatience)
	defer cancel()
	began := time.Now()
	response, text, err := fleet.Send(ctx, addr, apiKey, http.MethodPost, "/sdk/events", bytes.NewReader(b.body))
	a.took = time.Since(began)
	if err != nil {
		a.failure = failure(err)
		return a
	}
	a.status = response.StatusCode
	switch {
	case a.status == http.StatusOK:
		a.odd = a.receipt.read(text, len(b.ids))
	case a.status < 500 && a.status != http.StatusTooManyRequests && a.status != http.StatusUnauthorized:
		a.odd = fmt.Sprintf("status %d: %s", a.status, text)
	}
	return a
}

// read parses a response and returns what is wrong with it. All events of a batch are valid, so none may be rejected.
func (r *receipt) read(text []byte, events int) (odd string) {
	if err := json.Unmarshal(text, r); err != nil {
		return fmt.Sprintf("status 200: %s", text)
	}
	if len(r.Rejected) > 0 || r.Accepted+r.Duplicates != events || r.Accepted < 0 || r.Duplicates < 0 {
		return fmt.Sprintf("the response to %d events was %s", events, text)
	}
	return ""
}

// failure says why there was no response.
func failure(err error) string {
	var network *net.OpError
	switch {
	case errors.As(err, &network) && network.Op == "dial":
		return "refused"
	case errors.Is(err, context.DeadlineExceeded):
		return "timed out"
	case errors.Is(err, context.Canceled):
		return "given up"
	default:
		return "cut off"
	}
}

// openSession returns the session of a device.
func openSession(ctx context.Context, addr string, o fleet.Organization, device string) (id string, err error) {
	body := fmt.Appendf(nil, `{"deviceId":%q}`, device)
	response, text, err := fleet.Send(ctx, addr, o.ClientKey, http.MethodPost, "/sdk/session", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	var opened struct{ SessionID string }
	if err := json.Unmarshal(text, &opened); err != nil || response.StatusCode != http.StatusOK || opened.SessionID == "" {
		return "", fmt.Errorf("POST /sdk/session: %d %s", response.StatusCode, text)
	}
	return opened.SessionID, nil
}
