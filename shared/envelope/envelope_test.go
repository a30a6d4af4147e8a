package envelope_test

import (
	"encoding/json"
	"testing"
	"time"

	"deeplink/shared/envelope"
)

var now = time.Date(2026, 3, 1, 11, 2, 3, 4_999_999, time.FixedZone("CET", 3600))

func TestJSONHasItsMembersInDocumentedOrder(t *testing.T) {
	t.Parallel()
	full := envelope.New(402, "Plan limit reached", "/links", "req-1", now)
	full.Details = []envelope.Detail{{Field: "og.title", Message: "too long"}, {Message: "bad"}}
	full.Code, full.Quota, full.Feature, full.BillingEndpoint = "QUOTA_EXCEEDED", "links", "custom_domains", "/checkout"
	for name, test := range map[string]struct {
		sent     envelope.Envelope
		expected string
	}{
		"plain": {
			envelope.New(404, "Link not found", "/links/x", "", now),
			`{"statusCode":404,"error":"Not Found","message":"Link not found","timestamp":"2026-03-01T10:02:03.004Z","path":"/links/x"}`,
		},
		"full": {
			full,
			`{"statusCode":402,"error":"Payment Required","message":"Plan limit reached",` +
				`"details":[{"field":"og.title","message":"too long"},{"field":"","message":"bad"}],` +
				`"timestamp":"2026-03-01T10:02:03.004Z","path":"/links","requestId":"req-1",` +
				`"code":"QUOTA_EXCEEDED","quota":"links","feature":"custom_domains","billingEndpoint":"/checkout"}`,
		},
		"nothing is escaped for HTML": {
			envelope.New(404, `<&>"`, "/a?b&c", "", now),
			`{"statusCode":404,"error":"Not Found","message":"<&>\"","timestamp":"2026-03-01T10:02:03.004Z","path":"/a?b&c"}`,
		},
		"broken UTF-8": {
			envelope.New(400, "m", "/\xff\xc3\x28", "", now),
			`{"statusCode":400,"error":"Bad Request","message":"m","timestamp":"2026-03-01T10:02:03.004Z","path":"/\ufffd\ufffd("}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := string(test.sent.JSON()); got != test.expected {
				t.Errorf("%+v\ngot      %s\nexpected %s", test.sent, got, test.expected)
			}
		})
	}
}

func TestErrorIsTheNameOfTheStatus(t *testing.T) {
	t.Parallel()
	for status, expected := range map[int]string{
		400: "Bad Request", 401: "Unauthorized", 402: "Payment Required", 403: "Forbidden", 404: "Not Found",
		405: "Method Not Allowed", 409: "Conflict", 410: "Gone", 413: "Request Entity Too Large",
		414: "Request URI Too Long", 415: "Unsupported Media Type", 422: "Unprocessable Entity",
		428: "Precondition Required", 429: "Too Many Requests", 431: "Request Header Fields Too Large",
		500: "Internal Server Error", 501: "Not Implemented", 503: "Service Unavailable",
	} {
		if got := envelope.New(status, "", "/", "", now).Error; got != expected {
			t.Errorf("status %d: got %q, expected %q", status, got, expected)
		}
	}
}

func FuzzJSONIsValid(f *testing.F) {
	f.Add("/links", "id", "message")
	f.Add("/\x00\xff<script>", "\u2028", "\xed\xa0\x80")
	f.Fuzz(func(t *testing.T, path, id, message string) {
		body := envelope.New(400, message, path, id, now).JSON()
		var read envelope.Envelope
		if err := json.Unmarshal(body, &read); err != nil {
			t.Fatalf("path %q, id %q, message %q: %s: %v", path, id, message, body, err)
		}
	})
}
