(() => {
  const table = document.getElementById("every"), body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  const rows = [...body.rows], filter = document.getElementById("filter"), where = document.getElementById("where");
  const words = rows.map(row => row.textContent.toLowerCase()), SIZE = 50;
  let order = rows.map((_, place) => place), page = 0, sorted = -1, down = false;
  const number = text => parseFloat(text.replace(/,/g, ""));
  const show = () => {
    const asked = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = order.filter(place => asked.every(word => words[place].includes(word)));
    page = Math.max(0, Math.min(page, Math.ceil(found.length / SIZE) - 1));
    const first = page * SIZE, shown = found.slice(first, first + SIZE);
    body.replaceChildren(...shown.map(place => rows[place]));
    where.value = found.length ? `${first + 1} to ${first + shown.length} of ${found.length}` : "none";
  };
  const sort = column => {
    down = sorted === column && !down;
    sorted = column;
    const texts = rows.map(row => row.cells[column].textContent), numeric = heads[column].classList.contains("right");
    const compare = (a, b) => {
      if (!texts[a] || !texts[b]) return !texts[a] - !texts[b];  // what is empty stands last
      const way = numeric ? number(texts[a]) - number(texts[b]) : texts[a].localeCompare(texts[b]);
      return down ? -way : way;
    };
    order = rows.map((_, place) => place).sort(compare);
    heads.forEach((head, place) => head.setAttribute("aria-sort", place === column ? (down ? "descending" : "ascending") : "none"));
    page = 0;
    show();
  };
  heads.forEach((head, place) => {
    head.setAttribute("aria-sort", "none");
    head.tabIndex = 0;
    head.onclick = () => sort(place);
    head.onkeydown = event => { if (event.key === "Enter") sort(place); };
  });
  filter.oninput = () => { page = 0; show(); };
  document.getElementById("back").onclick = () => { page -= 1; show(); };
  document.getElementById("next").onclick = () => { page += 1; show(); };
  document.querySelector(".tools").hidden = false;
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(each => { each.open = true; }));
  show();
})();
