package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// The folders and files of deploy/kubernetes, in the order in which an operator applies them.
var (
	baseFolders    = []string{"namespace.yaml", "secrets.example.yaml", "migrate", "logins", "serve"}
	overlayFolders = []string{"namespace.yaml", "secrets.example.yaml", "overlay.example/migrate", "overlay.example/logins", "overlay.example/serve"}
)

// cluster holds the objects of two installations: the folders as they are, and the example overlay.
type cluster struct{ base, overlay objects }

func (c *cluster) count() int { return len(c.base) + len(c.overlay) }

// objects are decoded objects of the Kubernetes API.
type objects []runtime.Object

// pick returns the objects of one type.
func pick[T any](all objects) (some []*T) {
	for _, object := range all {
		if one, ok := any(object).(*T); ok {
			some = append(some, one)
		}
	}
	return some
}

func loadCluster(folder string) (*cluster, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		apps.AddToScheme, batch.AddToScheme, core.AddToScheme, networking.AddToScheme, policy.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	var c cluster
	for _, part := range []struct {
		to    *objects
		paths []string
	}{{&c.base, baseFolders}, {&c.overlay, overlayFolders}} {
		for _, path := range part.paths {
			decoded, err := load(decoder, filepath.Join(folder, path))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", filepath.Join(folder, path), err)
			}
			*part.to = append(*part.to, decoded...)
		}
	}
	return &c, nil
}

// load decodes a file, or what kustomize builds from a folder.
func load(decoder runtime.Decoder, path string) (objects, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		return decode(decoder, text)
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), path)
	if err != nil {
		return nil, err
	}
	text, err := built.AsYaml()
	if err != nil {
		return nil, err
	}
	return decode(decoder, text)
}

func decode(decoder runtime.Decoder, text []byte) (all objects, err error) {
	documents := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text)))
	defer documents.Close()
	for document := make([]byte, len(text)); ; {
		n, err := documents.Read(document)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		object, kind, err := decoder.Decode(document[:n], nil, nil)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", kind, err)
		}
		all = append(all, object)
	}
}

// workload is a pod template with the name of its controller.
type workload struct {
	name string
	pod  core.PodTemplateSpec
}

func workloads(all objects) (some []workload) {
	for _, one := range pick[apps.Deployment](all) {
		some = append(some, workload{one.Name, one.Spec.Template})
	}
	for _, one := range pick[apps.StatefulSet](all) {
		some = append(some, workload{one.Name, one.Spec.Template})
	}
	for _, one := range pick[batch.Job](all) {
		some = append(some, workload{one.Name, one.Spec.Template})
	}
	return some
}
