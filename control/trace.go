package main

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const (
	tracerName = "deeplink/control"
	// flushTimeout bounds how long stopping waits until the last spans are sent.
	flushTimeout = time.Second
)

// tracing sends a span for each request to an OTLP collector, with a child span for each statement and for the wait for the edges. Spans have
// routes and ids, like the log, and nothing else of the request. A nil tracing is valid and costs a request nothing.
type tracing struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// openTracing returns nil when endpoint is empty. It does not connect: a collector that is down is no error and delays no request. The
// OpenTelemetry libraries read the other standard variables, such as OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER and OTEL_EXPORTER_OTLP_HEADERS.
func openTracing(ctx context.Context, endpoint string, log *slog.Logger) (*tracing, error) {
	if endpoint == "" {
		return nil, nil
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("could not send trace spans", "error", err) }))
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(strings.TrimSuffix(endpoint, "/")+"/v1/traces"))
	if err != nil {
		return nil, err
	}
	about, err := resource.Merge(resource.NewSchemaless(attribute.String("service.name", "deeplink-control")), resource.Environment())
	if err != nil {
		return nil, err
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
	return &tracing{provider, provider.Tracer(tracerName)}, nil
}

// checkEndpoint returns an error for an invalid collector URL. Empty is valid (tracing off).
func checkEndpoint(endpoint string) error {
	if endpoint == "" {
		return nil
	}
	parsed, err := url.Parse(endpoint)
	if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Hostname() == "" || parsed.User != nil || parsed.RawQuery != "" {
		return errors.New("--otlp-endpoint ($OTEL_EXPORTER_OTLP_ENDPOINT) must be an http or https URL such as http://collector:4318")
	}
	return nil
}

// close sends the remaining spans.
func (t *tracing) close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		otel.Handle(err)
	}
}

// tracerOf returns the tracer, nil when tracing is off.
func (t *tracing) tracerOf() trace.Tracer {
	if t == nil {
		return nil
	}
	return t.tracer
}
