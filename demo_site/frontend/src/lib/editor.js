// CodeMirror in the site's colours. It lies in a shadow root: there CodeMirror adopts a style sheet, where in the
// document it would insert a <style> element, which the content security policy refuses.
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { python } from "@codemirror/lang-python";
import { bracketMatching, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { setDiagnostics } from "@codemirror/lint";
import { Compartment, EditorState, RangeSetBuilder } from "@codemirror/state";
import {
  Decoration, drawSelection, EditorView, highlightActiveLine, highlightSpecialChars, keymap, lineNumbers, ViewPlugin,
} from "@codemirror/view";
import { wgsl } from "@iizukak/codemirror-lang-wgsl";
import { classHighlighter, highlightCode } from "@lezer/highlight";

const LANGUAGES = { python, wgsl };

const token = (names, name, extra = {}) => ({ [names.map((one) => `.tok-${one}`).join(", ")]: { color: `var(--code-${name})`, ...extra } });

const DEEPEST = 24; // columns; lines that are indented more hang like these

/** Where a line is broken it goes on two columns right of its indentation; 6px are CodeMirror's own padding. */
const hanging = (columns) => ({
  paddingLeft: `calc(6px + ${columns + 2}ch)`,
  textIndent: `-${columns + 2}ch`,
});

const theme = EditorView.theme({
  ...Object.fromEntries(Array.from({ length: DEEPEST + 1 }, (_, columns) => [`.cm-hang-${columns}`, hanging(columns)])),
  "&": { backgroundColor: "var(--sheet)", color: "var(--ink)", fontSize: "0.8125rem", maxHeight: "inherit" },
  "&.cm-focused": { outline: "none" },
  // Above the line numbers, which would cover an outline.
  "&.cm-focused::after": { content: '""', position: "absolute", inset: "0", zIndex: "300", border: "2px solid var(--ink)", pointerEvents: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.6", fontVariantLigatures: "none", overflow: "auto" },
  ".cm-content": { padding: "0.75rem 0", caretColor: "var(--route)" },
  ".cm-gutters": { backgroundColor: "var(--sheet)", color: "var(--ink-soft)", border: "0" },
  ".cm-activeLine": { backgroundColor: "color-mix(in srgb, var(--sunken) 70%, transparent)" },
  ".cm-activeLineGutter": { backgroundColor: "var(--sunken)" },
  "&.cm-focused .cm-cursor": { borderLeftColor: "var(--route)", borderLeftWidth: "2px" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    background: "color-mix(in srgb, var(--series-2) 24%, transparent)",
  },
  "&.cm-focused .cm-matchingBracket": { backgroundColor: "transparent", outline: "1px solid var(--line-strong)" },
  ".cm-tooltip": { backgroundColor: "var(--sheet)", color: "var(--ink)", border: "1px solid var(--line-strong)" },
  ".cm-lintRange-error": { backgroundImage: "none", textDecoration: "underline wavy var(--bad)", textUnderlineOffset: "3px" },
  ".cm-diagnostic-error": { borderLeftColor: "var(--bad)" },
  ...token(["keyword", "bool", "operatorKeyword"], "keyword"),
  ...token(["string", "string2"], "string"),
  ...token(["number", "literal", "atom"], "number"),
  ...token(["comment"], "comment", { fontStyle: "italic" }),
  ...token(["typeName", "className", "namespace"], "type"),
  ...token(["definition", "macroName", "meta"], "name"),
});

/** Gives each visible line the class of its indentation: the content security policy allows no style attributes. */
const hang = ViewPlugin.fromClass(
  class {
    constructor(view) {
      this.update({ view, docChanged: true });
    }

    update({ view, docChanged, viewportChanged }) {
      if (!docChanged && !viewportChanged) return;
      const builder = new RangeSetBuilder();
      for (const { from, to } of view.visibleRanges) {
        for (let line = view.state.doc.lineAt(from); ; line = view.state.doc.line(line.number + 1)) {
          const columns = Math.min(line.text.search(/\S|$/), DEEPEST);
          builder.add(line.from, line.from, Decoration.line({ class: `cm-hang-${columns}` }));
          if (line.to >= to) break;
        }
      }
      this.decorations = builder.finish();
    }
  },
  { decorations: ({ decorations }) => decorations },
);

/**
 * Typing over a selection. Left to itself, Chromium wraps what is typed in an inline style that keeps the look of what
 * was selected, and the content security policy complains.
 */
const typeOver = EditorView.domEventHandlers({
  beforeinput(event, view) {
    const { selection, readOnly } = view.state;
    if (event.inputType !== "insertText" || !event.data || view.composing || readOnly || selection.main.empty) return false;
    view.dispatch(view.state.replaceSelection(event.data), { userEvent: "input.type", scrollIntoView: true });
    event.preventDefault();
    return true;
  },
});

/**
 * An editor in `container` (a .code block's body).
 *
 *   const editor = createEditor(container, { text, language: "python", label: "Python program", onRun, readOnly });
 *   editor.text; editor.text = "…"; editor.showError(line, message); editor.clearErrors(); editor.focus(); editor.view
 *
 * Ctrl/Cmd+Enter and Shift+Enter call onRun. Tab indents; Escape and then Tab leaves the editor, as the hint that
 * screen readers hear says. onChange(text) follows every edit.
 */
export function createEditor(container, { text = "", language = "python", label, onRun, onChange, readOnly = false }) {
  const host = document.createElement("div");
  host.className = "editor";
  container.append(host);
  const root = host.attachShadow({ mode: "open" });
  const editable = new Compartment();
  const run = () => {
    onRun?.();
    return Boolean(onRun);
  };
  const locked = (value) => [EditorState.readOnly.of(value)];
  const view = new EditorView({
    root,
    parent: root,
    state: EditorState.create({
      doc: text,
      extensions: [
        lineNumbers(),
        highlightSpecialChars(),
        history(),
        drawSelection(),
        typeOver,
        bracketMatching(),
        indentOnInput(),
        indentUnit.of("    "),
        highlightActiveLine(),
        EditorView.lineWrapping,
        hang,
        keymap.of([{ key: "Mod-Enter", run }, { key: "Shift-Enter", run }, ...defaultKeymap, ...historyKeymap, indentWithTab]),
        LANGUAGES[language](),
        syntaxHighlighting(classHighlighter),
        theme,
        editable.of(locked(readOnly)),
        EditorView.contentAttributes.of({
          tabindex: "0",
          "aria-label": readOnly ? label : `${label}. Press Escape, then Tab, to leave the editor`,
        }),
        EditorView.updateListener.of((update) => {
          if (!update.docChanged) return;
          onChange?.(view.state.doc.toString());
          host.dispatchEvent(new Event("input", { bubbles: true })); // as of a field: CodeMirror's own stays inside
        }),
      ],
    }),
  });
  document.fonts.ready.then(() => view.requestMeasure()); // the lines are higher in the page's own font
  return {
    view,
    get text() {
      return view.state.doc.toString();
    },
    set text(value) {
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: value } });
    },
    set readOnly(value) {
      view.dispatch({ effects: editable.reconfigure(locked(value)) });
    },
    showError(line, message) {
      const at = view.state.doc.line(Math.min(Math.max(line, 1), view.state.doc.lines));
      view.dispatch(setDiagnostics(view.state, [{ from: at.from, to: at.to, severity: "error", message }]));
      view.dispatch({ effects: EditorView.scrollIntoView(at.from, { y: "nearest" }) });
    },
    clearErrors() {
      view.dispatch(setDiagnostics(view.state, []));
    },
    focus() {
      view.focus();
    },
    destroy() {
      view.destroy();
      host.remove();
    },
  };
}

/** Highlights read-only code into an element, <code> for example. */
export function highlight(element, text, language) {
  const parsed = LANGUAGES[language]().language.parser.parse(text);
  element.replaceChildren();
  const put = (piece, classes) => {
    if (!classes) return element.append(piece);
    const span = document.createElement("span");
    span.className = classes;
    span.textContent = piece;
    return element.append(span);
  };
  highlightCode(text, parsed, classHighlighter, put, () => element.append("\n"));
}
