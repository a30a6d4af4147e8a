package api

import (
	"log/slog"
	"net/http"

	"go.opentelemetry.io/otel/trace"

	"deeplink/control/internal/store"
	"deeplink/shared/clientip"
)

// logAttributes returns what identifies a request in the log, as far as it is known: request id, network, organization, API key or user, trace.
func (s *Server) logAttributes(x *requestState, r *http.Request) []slog.Attr {
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

// Audited logs and counts an audit entry by its id. The audit trail also has its details.
func (s *Server) Audited(r store.Recorded) {
	s.metrics.changes.WithLabelValues(string(r.Action)).Inc()
	by := "keyId"
	switch r.Actor.Type() {
	case store.ActorUser:
		by = "subject"
	case store.ActorService:
		by = "job"
	case store.ActorOperator:
		by = "operator"
	}
	s.Log.Info("change", slog.String("auditId", r.ID), slog.String("action", string(r.Action)),
		slog.String("target", r.TargetType), slog.String("targetId", r.TargetID),
		slog.String("requestId", r.Actor.RequestID()), slog.String("network", clientip.Network(r.Actor.Address())),
		slog.String("organizationId", r.OrganizationID), slog.String(by, r.Actor.ID()))
}

// traceID returns the id of the request's trace, empty without tracing.
func traceID(r *http.Request) string {
	if id := trace.SpanContextFromContext(r.Context()).TraceID(); id.IsValid() {
		return id.String()
	}
	return ""
}
