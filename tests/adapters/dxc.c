/* Compiles HLSL to DXIL with dxcompiler.dll: a Windows program, which tests/adapters/dx12.py runs under wine.

   dxc.exe DXCOMPILER.DLL LIST

LIST is a file with a path to a shader in each line. For each a line is printed: the bytes of its DXIL, or 0 and what DXC
says against it, without line breaks. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

typedef struct { const void *text; size_t size; uint32_t encoding; } Source;

/* The methods of DXC's interfaces, in the order of dxcapi.h; those that are not called have no type. */
typedef struct Blob Blob;
struct Blob { struct { void *query, *add; ULONG (*release)(Blob *); void *(*content)(Blob *); size_t (*size)(Blob *); } *of; };

typedef struct Result Result;
struct Result {
    struct {
        void *query, *add;
        ULONG (*release)(Result *);
        HRESULT (*status)(Result *, HRESULT *);
        HRESULT (*object)(Result *, Blob **);
        HRESULT (*errors)(Result *, Blob **);
    } *of;
};

typedef struct Compiler Compiler;
struct Compiler {
    struct {
        void *query, *add, *release;
        HRESULT (*compile)(Compiler *, const Source *, const wchar_t **, uint32_t, void *, const GUID *, void **);
    } *of;
};

typedef HRESULT (*Create)(const GUID *, const GUID *, void **);

static const GUID COMPILER = {0x73e22d93, 0xe6ce, 0x47f3, {0xb5, 0xbf, 0xf0, 0x66, 0x4f, 0x39, 0xc1, 0xb0}};
static const GUID COMPILER_3 = {0x228b4687, 0x5a6a, 0x4730, {0x90, 0x0c, 0x97, 0x02, 0xb2, 0x20, 0x3f, 0x54}};
static const GUID RESULT = {0x58346cda, 0xdde7, 0x4497, {0x94, 0x61, 0x6f, 0x87, 0xaf, 0x5e, 0x06, 0x59}};

/* Those that wgpu gives: the language of 2018, strict IEEE rules; and types of 16 bits for f16. */
static const wchar_t *ARGUMENTS[] = {
    L"-E", L"main", L"-T", L"cs_6_2", L"-HV", L"2018", L"-no-warnings", L"-Gis", L"-enable-16bit-types",
};

static char *read_all(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    *size = ftell(file);
    rewind(file);
    char *content = malloc(*size + 1);
    *size = fread(content, 1, *size, file);
    content[*size] = 0;
    fclose(file);
    return content;
}

static void print_errors(Result *result) {
    Blob *errors = NULL;
    result->of->errors(result, &errors);
    printf("0 ");
    if (errors) {
        const char *text = errors->of->content(errors);
        for (size_t i = 0; i < errors->of->size(errors) && text[i]; i++) putchar(text[i] < ' ' ? ' ' : text[i]);
        errors->of->release(errors);
    }
    printf("\n");
}

static void compile(Compiler *compiler, const char *path) {
    Source source = {NULL, 0, CP_UTF8};
    char *text = read_all(path, &source.size);
    source.text = text;
    Result *result = NULL;
    uint32_t count = sizeof ARGUMENTS / sizeof *ARGUMENTS;
    if (!text || compiler->of->compile(compiler, &source, ARGUMENTS, count, NULL, &RESULT, (void **)&result) < 0) {
        printf("0 %s\n", text ? "the compiler failed" : "it cannot be read");
        free(text);
        return;
    }
    HRESULT status = -1;
    Blob *object = NULL;
    result->of->status(result, &status);
    if (status >= 0) result->of->object(result, &object);
    if (object) {
        printf("%u\n", (unsigned)object->of->size(object));
        object->of->release(object);
    } else {
        print_errors(result);
    }
    result->of->release(result);
    free(text);
}

int main(int count, char **arguments) {
    size_t size;
    HMODULE library = count == 3 ? LoadLibraryA(arguments[1]) : NULL;
    char *list = library ? read_all(arguments[2], &size) : NULL;
    Create create = library ? (Create)(void *)GetProcAddress(library, "DxcCreateInstance") : NULL;
    Compiler *compiler = NULL;
    if (!list || !create || create(&COMPILER, &COMPILER_3, (void **)&compiler) < 0) {
        fprintf(stderr, "dxc.exe: DXC could not be loaded, or there is no list\n");
        return 2;
    }
    for (char *path = strtok(list, "\r\n"); path; path = strtok(NULL, "\r\n")) compile(compiler, path);
    fflush(stdout);
    TerminateProcess(GetCurrentProcess(), 0); /* unloading DXC under wine may not end */
    return 0;
}
