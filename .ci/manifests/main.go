// Command manifests reads what deploy/ gives to Kubernetes and Docker Compose, by their own libraries. Of Kubernetes' files kustomize
// builds each folder, and what comes out is decoded into the types of the API, as strictly as the API does when it is told to: they refuse
// a field that they do not know and one given twice.
//
//	manifests COMPOSE-FILE KUBERNETES-FOLDER|KUBERNETES-FILE...
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

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

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: manifests COMPOSE-FILE KUBERNETES-FOLDER|KUBERNETES-FILE...")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "manifests:", err)
		os.Exit(1)
	}
}

func run(compose string, paths []string) error {
	services, err := checkCompose(compose)
	if err != nil {
		return fmt.Errorf("%s: %w", compose, err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		apps.AddToScheme, batch.AddToScheme, core.AddToScheme, networking.AddToScheme, policy.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	objects := 0
	for _, path := range paths {
		text, err := read(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		n, err := decode(decoder, text)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		objects += n
	}
	fmt.Printf("%d services of Compose, %d objects of Kubernetes\n", services, objects)
	return nil
}

// read returns the file, or what kustomize makes of the folder.
func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return os.ReadFile(path)
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), path)
	if err != nil {
		return nil, err
	}
	return built.AsYaml()
}

// decode reads all objects of a file and returns how many there are.
func decode(decoder runtime.Decoder, text []byte) (objects int, err error) {
	documents := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text)))
	defer documents.Close()
	for one := make([]byte, len(text)); ; objects++ {
		n, err := documents.Read(one)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return objects, err
		}
		if _, kind, err := decoder.Decode(one[:n], nil, nil); err != nil {
			return objects, fmt.Errorf("%v: %w", kind, err)
		}
	}
}
