package main

import (
	"log/slog"
	"net/http"

	"go.opentelemetry.io/otel/trace"

	"deeplink/control/internal/store"
	"deeplink/shared/clientip"
)

// about says whose request a line of the log is about, as far as is known: which request, from what network, of which organization, by
// which key or user.
func (s *server) about(x *exchange, r *http.Request) []slog.Attr {
	attributes := []slog.Attr{
		slog.String("requestId", x.requestID),
		slog.String("network", clientip.Network(s.client(r))),
	}
	for _, a := range []slog.Attr{
		slog.String("organizationId", x.organizationID), slog.String("keyId", x.keyID), slog.String("subject", x.subject),
		slog.String("traceId", traceID(r)),
	} {
		if a.Value.String() != "" {
			attributes = append(attributes, a)
		}
	}
	return attributes
}

// changed logs and counts a change that is in the audit trail, under the id that it has there. The trail also has its detail.
func (s *server) changed(r store.Recorded) {
	s.metrics.changes.WithLabelValues(string(r.Action)).Inc()
	by := "keyId"
	if r.Actor.Type == store.ActorUser {
		by = "subject"
	}
	s.log.Info("change", slog.String("auditId", r.ID), slog.String("action", string(r.Action)),
		slog.String("target", r.TargetType), slog.String("targetId", r.TargetID),
		slog.String("requestId", r.Actor.RequestID), slog.String("network", clientip.Network(r.Actor.Address)),
		slog.String("organizationId", r.OrganizationID), slog.String(by, r.Actor.ID))
}

// traceID names the trace that a request is part of; it is empty without tracing.
func traceID(r *http.Request) string {
	if id := trace.SpanContextFromContext(r.Context()).TraceID(); id.IsValid() {
		return id.String()
	}
	return ""
}
