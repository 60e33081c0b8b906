// An OpenTelemetry collector: what comes by OTLP over HTTP stands on the standard output, as lines of OTLP's JSON.
package main

import (
	"context"
	"fmt"
	"log"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"
)

type lines struct {
	component.StartFunc
	component.ShutdownFunc
}

func (lines) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

func (lines) ConsumeTraces(_ context.Context, traces ptrace.Traces) error {
	marshaler := ptrace.JSONMarshaler{}
	text, err := marshaler.MarshalTraces(traces)
	if err == nil {
		fmt.Println(string(text))
	}
	return err
}

func open(context.Context, exporter.Settings, component.Config) (exporter.Traces, error) {
	return lines{}, nil
}

func parts() (otelcol.Factories, error) {
	receivers := otlpreceiver.NewFactory()
	exporters := exporter.NewFactory(component.MustNewType("lines"), func() component.Config { return &struct{}{} },
		exporter.WithTraces(open, component.StabilityLevelStable))
	return otelcol.Factories{
		Receivers: map[component.Type]receiver.Factory{receivers.Type(): receivers},
		Exporters: map[component.Type]exporter.Factory{exporters.Type(): exporters},
		Telemetry: otelconftelemetry.NewFactory(),
	}, nil
}

func main() {
	command := otelcol.NewCommand(otelcol.CollectorSettings{
		BuildInfo: component.BuildInfo{Command: "collector"},
		Factories: parts,
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			ProviderFactories: []confmap.ProviderFactory{fileprovider.NewFactory()},
			DefaultScheme:     "file",
		}},
	})
	if err := command.Execute(); err != nil {
		log.Fatal(err)
	}
}
